/* UDP: batches by syscall(2), as libuv makes them. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"
#include <sys/syscall.h>

static void server(int fd) {
    char texts[4][8];
    struct iovec parts[4];
    struct mmsghdr messages[4];
    address_t peer;
    memset(messages, 0, sizeof messages);
    for (int n = 0; n < 4; n++) {
        parts[n] = (struct iovec){texts[n], sizeof texts[n]};
        messages[n].msg_hdr.msg_iov = &parts[n];
        messages[n].msg_hdr.msg_iovlen = 1;
    }
    messages[0].msg_hdr.msg_name = &peer;
    messages[0].msg_hdr.msg_namelen = sizeof peer;
    pause_ms(200);
    long got = result("recvmmsg", syscall(SYS_recvmmsg, fd, messages, 4, MSG_WAITFORONE, NULL));
    for (int n = 0; n < got; n++)
        say("%.*s", (int)messages[n].msg_len, texts[n]);
    result("recvmmsg of nothing", syscall(SYS_recvmmsg, fd, messages, 4, MSG_DONTWAIT, NULL));
    result("answer", sendto(fd, "answer", 6, 0, (struct sockaddr *)&peer, sizeof peer));
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    char text[8];
    struct iovec parts[3] = {{"one", 3}, {"two", 3}, {"three", 5}};
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int n = 0; n < 3; n++)
        messages[n].msg_hdr = (struct msghdr){.msg_iov = &parts[n], .msg_iovlen = 1};
    result("sendmmsg to nobody", syscall(SYS_sendmmsg, fd, messages, 3, 0));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("sendmmsg", syscall(SYS_sendmmsg, fd, messages, 3, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    say("getpid %d", syscall(SYS_getpid) == getpid());
    result("no such call", syscall(100000));
    close(fd);
}
