/* readv, writev, sendmsg, recvmsg, sendmmsg, recvmmsg: many slices, empty ones, wrong counts. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    struct iovec slices[] = {{"ab", 2}, {"", 0}, {"cdef", 4}};
    result("writev", writev(fd, slices, 3));
    result("writev of -1", writev(fd, slices, -1));
    result("writev of nothing", writev(fd, slices, 0));
    await(fd);
    struct msghdr message = {.msg_iov = slices, .msg_iovlen = 3};
    result("sendmsg", sendmsg(fd, &message, 0));
    await(fd);
    struct mmsghdr many[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    result("sendmmsg", sendmmsg(fd, many, 2, 0));
    say("lengths %u %u", many[0].msg_len, many[1].msg_len);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    char a[3] = {0}, b[2] = {0}, c[16] = {0};
    struct iovec slices[] = {{a, 2}, {NULL, 0}, {b, 1}, {c, 15}};
    pause_ms(50);
    result("readv", readv(fd, slices, 4));
    say("text %s %s %s", a, b, c);
    result("readv of 2000", readv(fd, slices, 2000));
    step(fd);
    pause_ms(50);
    char name[32], control[32];
    struct msghdr message = {.msg_iov = slices, .msg_iovlen = 4, .msg_name = name,
        .msg_namelen = sizeof name, .msg_control = control, .msg_controllen = sizeof control,
        .msg_flags = -1};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("namelen %d, controllen %d, flags %d", (int)message.msg_namelen, (int)message.msg_controllen,
        message.msg_flags);
    step(fd);
    pause_ms(50);
    struct iovec five = {c, 5};
    struct mmsghdr many[3] = {0};
    for (int i = 0; i < 3; i++) {
        many[i].msg_hdr.msg_iov = &five;
        many[i].msg_hdr.msg_iovlen = 1;
    }
    result("recvmmsg", recvmmsg(fd, many, 3, MSG_WAITFORONE, NULL));
    say("lengths %u %u %u", many[0].msg_len, many[1].msg_len, many[2].msg_len);
    result("recvmmsg of nothing", recvmmsg(fd, many, 3, MSG_DONTWAIT, NULL));
    step(fd);
    close(fd);
}
