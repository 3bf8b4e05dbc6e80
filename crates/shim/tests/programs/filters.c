/* Filters of sockets, whose instructions are memory of the program. PARITY_V6 too. */
#include "parity.h"
#include <linux/filter.h>

/* "Take all of it." */
static struct sock_filter take = {BPF_RET | BPF_K, 0, 0, 0xffff};

static void attach(const char *name, int fd, int option) {
    struct sock_fprog filter = {1, &take}, empty = {0, &take}, nowhere = {1, NULL}, far = {1, (struct sock_filter *)8};
    int number = -1;
    say("%s", name);
    result("attach", setsockopt(fd, SOL_SOCKET, option, &filter, sizeof filter));
    result("attach none", setsockopt(fd, SOL_SOCKET, option, &empty, sizeof empty));
    result("attach null", setsockopt(fd, SOL_SOCKET, option, &nowhere, sizeof nowhere));
    result("attach what is no memory", setsockopt(fd, SOL_SOCKET, option, &far, sizeof far));
    result("attach a number", setsockopt(fd, SOL_SOCKET, option, &number, sizeof number));
}

static void both(const char *name, int fd) {
    int on = 1;
    attach(name, fd, SO_ATTACH_FILTER);
    result("detach", setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
    result("detach again", setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
    attach("among several listeners", fd, SO_ATTACH_REUSEPORT_CBPF);
    on = -1;
    result("attach a program", setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &on, sizeof on));
    on = open("/dev/null", O_RDONLY);
    result("attach no program", setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &on, sizeof on));
    close(on);
}

static void server(int listener) {
    both("listener", listener);
    int fd = accept(listener, NULL, NULL);
    char text[8];
    both("accepted", fd);
    result("recv", recv(fd, text, sizeof text, MSG_WAITALL));
    close(fd);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0), datagrams = socket(FAMILY, SOCK_DGRAM, 0);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    both("connected", fd);
    result("send", send(fd, "8 bytes.", 8, 0));
    peer.PORT = 0;
    result("bind", bind(datagrams, (struct sockaddr *)&peer, sizeof peer));
    both("datagrams", datagrams);
    close(datagrams);
    close(fd);
}
