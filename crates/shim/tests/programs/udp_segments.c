/* UDP: one send cut into many datagrams (UDP_SEGMENT), and what is merged for a receiver (UDP_GRO). */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"
#include <linux/udp.h>

static char large[65536];

static void server(int fd) {
    int on = 1, total = 0;
    result("UDP_GRO", setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on));
    struct timeval limit = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    address_t peer;
    socklen_t len = sizeof peer;
    result("hello", recvfrom(fd, large, 1, 0, (struct sockaddr *)&peer, &len));
    sendto(fd, "go", 2, 0, (struct sockaddr *)&peer, len);
    static char text[65536];
    /* How much is merged is up to the stack; the sum is not, nor that pieces are of the size that is named. */
    int whole = 1;
    while (total < 20001) {
        char control[64];
        struct iovec part = {text, sizeof text};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        long got = recvmsg(fd, &message, 0);
        if (got < 0)
            break;
        int size = (int)got;
        for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
            if (one->cmsg_level == IPPROTO_UDP && one->cmsg_type == UDP_GRO)
                size = *(int *)CMSG_DATA(one);
        whole &= size <= 1000 && (got % size == 0 || total + got == 20001);
        for (int n = 0; n < got; n++)
            whole &= text[n] == (char)((total + n) * 7);
        total += (int)got;
    }
    say("received %d in pieces as they were cut %d", total, whole);
}

static long with_segment(int fd, address_t peer, size_t len, unsigned short segment) {
    char control[CMSG_SPACE(sizeof segment)] = {0};
    struct iovec part = {large, len};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *one = CMSG_FIRSTHDR(&message);
    one->cmsg_level = IPPROTO_UDP;
    one->cmsg_type = UDP_SEGMENT;
    one->cmsg_len = CMSG_LEN(sizeof segment);
    memcpy(CMSG_DATA(one), &segment, sizeof segment);
    return sendmsg(fd, &message, 0);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0), size = 1000, value = -1;
    socklen_t len = sizeof value;
    char text[4];
    for (size_t n = 0; n < sizeof large; n++)
        large[n] = (char)(n * 7);
    result("hello", sendto(fd, "h", 1, 0, (struct sockaddr *)&peer, sizeof peer));
    result("go", recv(fd, text, sizeof text, 0));
    result("UDP_SEGMENT", setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &value, &len);
    say("is %d", value);
    result("twenty segments and a byte", sendto(fd, large, 20001, 0, (struct sockaddr *)&peer, sizeof peer));
    pause_ms(300);
    result("too many segments", with_segment(fd, peer, 60000, 100));
    result("too long", with_segment(fd, peer, sizeof large, 1000));
    size = 70000;
    result("no size", setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    close(fd);
}
