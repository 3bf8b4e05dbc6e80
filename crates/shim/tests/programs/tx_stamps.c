/* SO_TIMESTAMPING of what is sent by TCP: when the last byte of a call was handed on, left, and was acknowledged. */
#include "parity.h"
#include "tx_stamps.h"

static char large[200000];

static void server(int listener) {
    for (int i = 0; i < 4; i++) {
        int fd = accepted(listener);
        long total = 0, count;
        static char text[65536];
        while ((count = recv(fd, text, sizeof text, 0)) > 0)
            total += count;
        say("received %ld", total);
        close(fd);
    }
}

static void options(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    says("fresh", fd);
    ask_for("software", fd, SND | SOFT);
    says("software", fd);
    ask_for("ID before a connection", fd, SND | SOFT | ID);
    ask_for("ID_TCP alone", fd, SND | SOFT | ID_TCP);
    ask_for("unknown", fd, 1u << 19);
    ask_for("unknown and known", fd, SND | 1u << 30);
    ask_for("hardware", fd, SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);
    ask_for("statistics alone", fd, SOF_TIMESTAMPING_OPT_STATS);
    ask_for("statistics", fd, SOF_TIMESTAMPING_OPT_STATS | TSONLY);
    ask_for("PKTINFO, SWHW", fd, SND | SOF_TIMESTAMPING_OPT_PKTINFO | SOF_TIMESTAMPING_OPT_TX_SWHW);
    unsigned short small = 2;
    result("short", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &small, sizeof small));
    unsigned pair[2] = {SND | SOFT, 0};
    result("with a clock", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, pair, sizeof pair));
    says("at last", fd);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("one", send(fd, "hello", 5, 0));
    entries("without ID", fd, 1, 0);
    entries("no more", fd, 0, 0);
    result("two", send(fd, "hello", 5, 0));
    entries("whole", fd, 1, 2000);
    result("three", send(fd, "hello", 5, 0));
    entries("cut", fd, 1, 10);
    no_more("no more", fd);
    close(fd);
}

static void keys(address_t peer) {
    int fd = connected(peer);
    result("before", send(fd, "hello", 5, 0));
    pause_ms(100);
    ask_for("all", fd, SCHED | SND | ACK | SOFT | ID | TSONLY);
    says("all", fd);
    result("one", send(fd, "hello", 5, 0));
    entries("one", fd, 3, 100);
    no_more("no more", fd);
    result("large", send(fd, large, sizeof large, 0));
    entries("large", fd, 3, 0);
    no_more("no more", fd);
    result("two, joined", send(fd, "ab", 2, MSG_MORE));
    result("two, joined", send(fd, "cd", 2, 0));
    entries("joined", fd, 3, 0);
    no_more("no more", fd);
    ask_for("the same again", fd, SCHED | SND | ACK | SOFT | ID | TSONLY);
    result("write", write(fd, "xyz", 3));
    entries("write", fd, 3, 0);
    ask_for("without ID", fd, ACK | SOFT | TSONLY);
    result("write", write(fd, "xyz", 3));
    entries("without ID", fd, 1, 0);
    ask_for("ID_TCP", fd, ACK | SOFT | TSONLY | ID | ID_TCP);
    result("write", write(fd, "xyz", 3));
    entries("ID_TCP", fd, 1, 0);
    struct iovec parts[2] = {{"one", 3}, {"two", 3}};
    result("writev", writev(fd, parts, 2));
    entries("writev", fd, 1, 0);
    result("nothing", send(fd, "", 0, 0));
    no_more("nothing", fd);
    ask_for("not reported", fd, ACK | TSONLY | ID | ID_TCP);
    result("write", write(fd, "xyz", 3));
    entries("not reported", fd, 1, 0);
    ask_for("off", fd, 0);
    result("write", write(fd, "xyz", 3));
    pause_ms(50);
    no_more("off", fd);
    close(fd);
}

static void calls(address_t peer) {
    int fd = connected(peer);
    ask_for("to be told", fd, SOFT | ID | TSONLY);
    result("write", write(fd, "xyz", 3));
    pause_ms(50);
    no_more("none asked for", fd);
    result("acknowledged", send_with(fd, "hello", 5, ACK, 0));
    entries("acknowledged", fd, 1, 0);
    result("sent", send_with(fd, "hello", 5, SND, 0));
    entries("sent", fd, 1, 0);
    result("wrong", send_with(fd, "hello", 5, SOFT, 0));
    result("wrong", send_with(fd, "hello", 5, ACK | ID, 0));
    result("none", send_with(fd, "hello", 5, 0, 0));
    pause_ms(50);
    no_more("none", fd);
    ask_for("always", fd, SOFT | ID | TSONLY | ACK);
    result("not this one", send_with(fd, "hello", 5, 0, 0));
    result("but this", write(fd, "xyz", 3));
    entries("but this", fd, 1, 0);
    no_more("no more", fd);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, seen = {0};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    result("quiet", epoll_wait(epoll, &seen, 1, 0));
    result("write", write(fd, "xyz", 3));
    result("epoll", epoll_wait(epoll, &seen, 1, 5000));
    say("events %#x", seen.events);
    entries("epoll", fd, 1, 0);
    result("MSG_ERRQUEUE by recv, empty", recv(fd, large, 10, MSG_ERRQUEUE));
    shutdown(fd, SHUT_WR);
    result("end", recv(fd, large, 10, 0));
    close(epoll);
    close(fd);
}

static void shown(address_t peer) {
    int fd = connected(peer), on = 1;
    setsockopt(fd, FAMILY == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, FAMILY == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO, &on, sizeof on);
    ask_for("with bytes", fd, ACK | SND | SOFT | ID);
    result("send", send(fd, "hello", 5, 0));
    entries("with bytes", fd, 2, 100);
    ask_for("described", fd, ACK | SND | SOFT | ID | CMSG);
    result("send", send(fd, "hello", 5, 0));
    entries("described", fd, 2, 100);
    result("joined", send(fd, "hel", 3, MSG_MORE));
    result("joined", send(fd, "hello", 5, 0));
    entries("joined", fd, 2, 100);
    on = 1;
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    result("send", send(fd, "hello", 5, 0));
    entries("with SO_TIMESTAMPNS", fd, 2, 0);
    close(fd);
}

static void client(address_t peer) {
    options(peer);
    keys(peer);
    calls(peer);
    shown(peer);
}
