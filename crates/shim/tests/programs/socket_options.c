/* SO_RCVLOWAT in epoll, TCP_CONGESTION, SO_TIMESTAMP and its kin on TCP, SO_PRIORITY, SO_MARK, SO_BINDTODEVICE. */
#include "parity.h"
#include <linux/net_tstamp.h>

static void waits(const char *what, int poller, int timeout_ms) {
    struct epoll_event event = {0};
    int ready = epoll_wait(poller, &event, 1, timeout_ms);
    events(what, ready == 1 ? event.events : 0);
}

static void low_water(int fd) {
    int bytes = 10, level = epoll_create1(0), edge = epoll_create1(0);
    char buffer[64];
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    result("SO_RCVLOWAT", setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes));
    epoll_ctl(level, EPOLL_CTL_ADD, fd, &event);
    event.events |= EPOLLET;
    epoll_ctl(edge, EPOLL_CTL_ADD, fd, &event);
    step(fd);
    waits("four of ten", level, 100);
    waits("four of ten, edge", edge, 0);
    step(fd);
    waits("ten of ten", level, 2000);
    waits("ten of ten, edge", edge, 2000);
    waits("once, edge", edge, 0);
    step(fd);
    pause_ms(50);
    waits("eleven, edge", edge, 2000);
    result("five", recv(fd, buffer, 5, 0));
    waits("six left", level, 0);
    bytes = 6;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    waits("six of six", level, 0);
    waits("six of six, edge", edge, 0);
    result("the rest", recv(fd, buffer, sizeof buffer, 0));
    step(fd);
    waits("the end", level, 2000);
    waits("the end, edge", edge, 2000);
    result("recv", recv(fd, buffer, sizeof buffer, 0));
    close(level);
    close(edge);
}

static void congestion(const char *what, int fd) {
    char name[16] = "?";
    socklen_t len = sizeof name;
    getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len);
    say("%s: %s, %d bytes", what, name, (int)len);
}

static void choose(const char *name, int fd) {
    int done = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    say("%s: %s", name, done < 0 ? error_name(errno) : "ok");
    congestion("now", fd);
}

/* Receives with control messages, and says which came. */
static void with_control(const char *what, int fd, size_t room) {
    char bytes[64], control[256];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    result(what, recvmsg(fd, &message, 0));
    say("flags %d, length %d", message.msg_flags, (int)message.msg_controllen);
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        struct timespec times[3] = {0};
        size_t len = one->cmsg_len - CMSG_LEN(0);
        memcpy(times, CMSG_DATA(one), len < sizeof times ? len : sizeof times);
        say("level %d, type %d, %d bytes, lately %d", one->cmsg_level, one->cmsg_type, (int)len,
            len < 16 || (times[0].tv_sec >= clock.tv_sec - 5 && times[0].tv_sec <= clock.tv_sec));
    }
}

/* The kernel begins to stamp what arrives a little after the first socket of the machine has asked for it, on a busy machine much
 * later. This socket has asked, has been given a stamp, and is open until the program's end. */
static void kernel_stamps(void) {
    int on = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE, fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof own;
    bind(fd, (struct sockaddr *)&own, len);
    getsockname(fd, (struct sockaddr *)&own, &len);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof on);
    char control[256], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message;
    do {
        pause_ms(1);
        message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        sendto(fd, "s", 1, 0, (struct sockaddr *)&own, len);
    } while (recvmsg(fd, &message, 0) == 1 && message.msg_controllen == 0);
}

static void timestamps(int fd) {
    int on = 1, off = 0, arrival = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    step(fd);
    pause_ms(50);
    with_control("none asked for", fd, 256);
    result("SO_TIMESTAMP", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    pause_ms(50);
    step(fd);
    pause_ms(50);
    with_control("SO_TIMESTAMP", fd, 256);
    result("SO_TIMESTAMPNS", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on));
    step(fd);
    pause_ms(50);
    with_control("SO_TIMESTAMPNS", fd, 256);
    step(fd);
    pause_ms(50);
    with_control("too little room", fd, 20);
    step(fd);
    pause_ms(50);
    with_control("no room", fd, 0);
    result("SO_TIMESTAMPNS", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &off, sizeof off));
    result("SO_TIMESTAMPING", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &arrival, sizeof arrival));
    step(fd);
    pause_ms(50);
    with_control("SO_TIMESTAMPING", fd, 256);
    result("SO_TIMESTAMPING", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &off, sizeof off));
    step(fd);
    pause_ms(50);
    with_control("none", fd, 256);
}

static void server(int listener) {
    choose("reno", listener);
    int fd = accepted(listener);
    low_water(fd);
    close(fd);
    fd = accepted(listener);
    congestion("inherited", fd);
    choose("cubic", fd);
    kernel_stamps();
    timestamps(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), value = 3;
    await(fd);
    send(fd, "1234", 4, 0);
    await(fd);
    send(fd, "567890", 6, 0);
    await(fd);
    send(fd, "a", 1, 0);
    await(fd);
    close(fd);

    fd = connected(peer);
    choose("reno", fd);
    choose("nosuch", fd);
    choose("", fd);
    for (int i = 0; i < 7; i++) {
        await(fd);
        send(fd, "data", 4, 0);
    }
    char byte;
    result("end", recv(fd, &byte, 1, 0));
    socklen_t len = sizeof value;
    result("SO_PRIORITY", setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, sizeof value));
    getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, &len);
    say("is %d", value);
    value = 77;
    result("SO_MARK", setsockopt(fd, SOL_SOCKET, SO_MARK, &value, sizeof value));
    value = -1;
    getsockopt(fd, SOL_SOCKET, SO_MARK, &value, &len);
    say("is %d", value);
    close(fd);

    char device[16] = "?";
    fd = socket(FAMILY, SOCK_STREAM, 0);
    len = sizeof device;
    result("a device of no", getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &len));
    say("length %d", (int)len);
    result("no such device", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuch0", 8));
    result("lo", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    len = sizeof device;
    result("the device", getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &len));
    say("%s, length %d", device, (int)len);
    result("none", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    close(fd);
}
