/* UDP: sendmmsg, recvmmsg, control messages both ways. */
#define PARITY_UDP
#include "parity.h"
#include <linux/udp.h>

static struct sockaddr_in own;

static void show(struct msghdr *message) {
    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one)) {
        if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo *info = (void *)CMSG_DATA(one);
            say("PKTINFO of %d: interface %s, own address %d %d", (int)one->cmsg_len, info->ipi_ifindex ? "set" : "0",
                info->ipi_addr.s_addr == own.sin_addr.s_addr, info->ipi_spec_dst.s_addr == own.sin_addr.s_addr);
        } else if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_TTL) {
            say("TTL of %d: %d", (int)one->cmsg_len, *(int *)CMSG_DATA(one));
        } else if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_TOS) {
            say("TOS of %d: %d", (int)one->cmsg_len, *(unsigned char *)CMSG_DATA(one));
        } else if (one->cmsg_level == SOL_SOCKET) {
            struct timespec *time = (void *)CMSG_DATA(one), real;
            clock_gettime(CLOCK_REALTIME, &real);
            say("type %d of %d: %s", one->cmsg_type, (int)one->cmsg_len,
                real.tv_sec - time->tv_sec <= 2 ? "now" : "some time");
        } else {
            say("level %d type %d", one->cmsg_level, one->cmsg_type);
        }
    }
}

static void take(int fd, size_t room) {
    char text[64] = {0}, control[256] = {0};
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("control of %d%s", (int)message.msg_controllen, message.msg_flags & MSG_CTRUNC ? ", cut" : "");
    show(&message);
}

static void server(int fd) {
    int on = 1;
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    struct sockaddr_in peer;
    char byte;
    len = sizeof peer;
    result("hello", recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&peer, &len));
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    sendto(fd, "go", 2, 0, (struct sockaddr *)&peer, len);
    take(fd, 256);
    take(fd, 256);
    take(fd, 256);
    take(fd, 60);
    int off = 0;
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &off, sizeof off);
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &off, sizeof off);
    setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &off, sizeof off);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &off, sizeof off);
    sendto(fd, "go", 2, 0, (struct sockaddr *)&peer, len);
    pause_ms(100);

    char texts[4][16];
    struct iovec parts[4];
    struct mmsghdr messages[4];
    memset(messages, 0, sizeof messages);
    for (int n = 0; n < 4; n++) {
        parts[n] = (struct iovec){texts[n], sizeof texts[n]};
        messages[n].msg_hdr.msg_iov = &parts[n];
        messages[n].msg_hdr.msg_iovlen = 1;
    }
    int got = (int)result("recvmmsg", recvmmsg(fd, messages, 4, MSG_WAITFORONE, NULL));
    for (int n = 0; n < got; n++)
        say("%.*s", (int)messages[n].msg_len, texts[n]);
    result("recvmmsg of nothing", recvmmsg(fd, messages, 4, MSG_DONTWAIT, NULL));
    for (int n = 0; n < 3; n++)
        result("segment", recv(fd, texts[0], sizeof texts[0], 0));
}

static void client(struct sockaddr_in peer) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    result("hello", sendto(fd, "h", 1, 0, (struct sockaddr *)&peer, sizeof peer));
    result("go", recv(fd, text, sizeof text, 0));
    result("plain", sendto(fd, "plain", 5, 0, (struct sockaddr *)&peer, sizeof peer));
    int ttl = 9, tos = 0x20;
    result("IP_TTL", setsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl));
    result("IP_TOS", setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
    result("by the socket", sendto(fd, "set", 3, 0, (struct sockaddr *)&peer, sizeof peer));

    char control[CMSG_SPACE(sizeof(int)) * 2];
    struct iovec part = {"told", 4};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    memset(control, 0, sizeof control);
    struct cmsghdr *one = CMSG_FIRSTHDR(&message);
    one->cmsg_level = IPPROTO_IP;
    one->cmsg_type = IP_TTL;
    one->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(one) = 33;
    one = CMSG_NXTHDR(&message, one);
    one->cmsg_level = IPPROTO_IP;
    one->cmsg_type = IP_TOS;
    one->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(one) = 0x40;
    result("by the message", sendmsg(fd, &message, 0));
    one->cmsg_type = 99;
    result("nonsense", sendmsg(fd, &message, 0));
    message.msg_controllen = 0;
    result("again", sendmsg(fd, &message, 0));
    result("go", recv(fd, text, sizeof text, 0));

    struct iovec parts[3] = {{"one", 3}, {"", 0}, {"three", 5}};
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int n = 0; n < 3; n++) {
        messages[n].msg_hdr = (struct msghdr){.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &parts[n], .msg_iovlen = 1};
    }
    result("sendmmsg", sendmmsg(fd, messages, 3, 0));
    say("%u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    pause_ms(300);
    int segment = 6;
    result("UDP_SEGMENT", setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment));
    result("three segments", sendto(fd, "abcdefghijklmn", 14, 0, (struct sockaddr *)&peer, sizeof peer));
    close(fd);
}
