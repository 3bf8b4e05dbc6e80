/* SO_TIMESTAMPING of datagrams that are sent: when each was handed on and left, on the error queue. */
#define PARITY_UDP
#include "parity.h"
#include "tx_stamps.h"

#ifndef SCM_TS_OPT_ID
#define SCM_TS_OPT_ID 81
#endif

static void server(int fd) {
    char text[2000];
    long total = 0, got;
    while ((got = recv(fd, text, sizeof text, 0)) > 3 || strncmp(text, "end", 3))
        total++;
    say("received %ld", total);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    struct sockaddr *to = (struct sockaddr *)&peer;
    says("fresh", fd);
    ask_for("ID_TCP", fd, SND | SOFT | ID | ID_TCP);
    ask_for("statistics", fd, SOF_TIMESTAMPING_OPT_STATS | TSONLY);
    ask_for("software", fd, SND | SOFT);
    says("software", fd);
    result("sendto", sendto(fd, "hello", 5, 0, to, sizeof peer));
    entries("whole", fd, 1, 2000);
    result("sendto", sendto(fd, "hello", 5, 0, to, sizeof peer));
    entries("cut", fd, 1, 10);
    no_more("no more", fd);
    ask_for("ID", fd, SCHED | SND | ACK | SOFT | ID | TSONLY);
    for (int i = 0; i < 3; i++) {
        result("sendto", sendto(fd, "hello", 5, 0, to, sizeof peer));
        entries("counted", fd, 2, 100);
    }
    no_more("no more", fd);
    ask_for("the same again", fd, SND | SOFT | ID | TSONLY);
    result("sendto", sendto(fd, "hello", 5, 0, to, sizeof peer));
    entries("goes on", fd, 1, 100);
    ask_for("without ID", fd, SND | SOFT | TSONLY);
    result("sendto", sendto(fd, "hello", 5, 0, to, sizeof peer));
    entries("without ID", fd, 1, 100);
    ask_for("from nought", fd, SOFT | ID | TSONLY);
    result("connect", connect(fd, to, sizeof peer));
    result("send, none asked for", send(fd, "hello", 5, 0));
    no_more("none asked for", fd);
    result("this one", send_with(fd, "hello", 5, SND, 0));
    entries("this one", fd, 1, 0);
    result("wrong", send_with(fd, "hello", 5, SOFT, 0));
    result("SCHED", send_with(fd, "hello", 5, SCHED, 0));
    entries("SCHED", fd, 1, 0);
    ask_for("all of them", fd, SOFT | ID | TSONLY | SND);
    result("send", send(fd, "hello", 5, 0));
    result("send", send(fd, "hello", 5, 0));
    entries("two", fd, 2, 0);
    result("none", send_with(fd, "hello", 5, 0, 0));
    no_more("none", fd);
    result("send", send(fd, "", 0, 0));
    entries("empty", fd, 1, 0);
    ask_for("with payload", fd, SOFT | ID | SND | CMSG);
    result("send", send(fd, "hello", 5, 0));
    entries("with payload", fd, 1, 2000);
    int on = 1;
    setsockopt(fd, FAMILY == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, FAMILY == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO, &on, sizeof on);
    result("send", send(fd, "hello", 5, 0));
    entries("with PKTINFO", fd, 1, 2000);
    ask_for("only times", fd, SOFT | ID | SND | CMSG | TSONLY);
    result("send", send(fd, "hello", 5, 0));
    entries("with PKTINFO, only times", fd, 1, 2000);
    ask_for("not reported", fd, SND | TSONLY);
    result("send", send(fd, "hello", 5, 0));
    entries("not reported", fd, 1, 0);
    ask_for("off", fd, 0);
    result("send", send(fd, "hello", 5, 0));
    no_more("off", fd);
    result("send", send(fd, "end", 3, 0));
    close(fd);
}
