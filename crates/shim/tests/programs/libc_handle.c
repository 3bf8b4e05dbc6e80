/* Calls by libc's own symbols, as libraries find them that are loaded with RTLD_DEEPBIND and foreign functions of other languages: no
   symbol of a preloaded library stands before those. */
#include "parity.h"
#include <dlfcn.h>

/* As libc has it; a static program has no other. */
static void *own(const char *name, void *linked) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *found = libc ? dlsym(libc, name) : NULL;
    return found ? found : linked;
}
#define OWN(name) ((__typeof__(&name))own(#name, (void *)name))

static int readable(int fd, const char *way) {
    struct timespec patience = {5, 0};
    if (!strcmp(way, "pselect") || !strcmp(way, "select")) {
        struct timeval same = {5, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        if (!strcmp(way, "select"))
            return OWN(select)(fd + 1, &set, NULL, NULL, &same);
        return OWN(pselect)(fd + 1, &set, NULL, NULL, &patience, NULL);
    }
    struct pollfd one = {fd, POLLIN, 0};
    return OWN(ppoll)(&one, 1, &patience, NULL);
}

static void epolls(int fd, int maker) {
    int set = maker ? OWN(epoll_create1)(0) : OWN(epoll_create)(1);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd}, got = {0};
    result("epoll_ctl", OWN(epoll_ctl)(set, EPOLL_CTL_ADD, fd, &event));
    result("epoll", maker ? OWN(epoll_pwait)(set, &got, 1, 5000, NULL) : OWN(epoll_wait)(set, &got, 1, 5000));
    events("is", got.events);
    OWN(close)(set);
}

/* A listener of its own, and a connection to it. */
static void listens(address_t address) {
    socklen_t len = sizeof address;
    int listener = OWN(socket)(FAMILY, SOCK_STREAM, 0), fd = OWN(socket)(FAMILY, SOCK_STREAM, 0);
    address.PORT = 0;
    result("bind", OWN(bind)(listener, (struct sockaddr *)&address, sizeof address));
    result("listen", OWN(listen)(listener, 4));
    result("getsockname", OWN(getsockname)(listener, (struct sockaddr *)&address, &len));
    result("connect", OWN(connect)(fd, (struct sockaddr *)&address, sizeof address));
    result("listener ready", readable(listener, "ppoll"));
    int peer = OWN(accept)(listener, NULL, NULL);
    result("send", OWN(send)(fd, "hello", 5, 0));
    char bytes[8];
    result("recv", OWN(recv)(peer, bytes, sizeof bytes, 0));
    OWN(close)(peer);
    OWN(close)(fd);
    OWN(close)(listener);
}

static void server(int listener) {
    address_t address;
    socklen_t len = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &len);
    listens(address);
    int fd = OWN(accept)(listener, NULL, NULL);
    say("accepted %d", fd >= 0);
    int next = OWN(accept4)(listener, NULL, NULL, SOCK_CLOEXEC);
    say("accepted %d", next >= 0);
    char bytes[100];
    result("select", readable(fd, "select"));
    result("pselect", readable(fd, "pselect"));
    epolls(fd, 0);
    epolls(fd, 1);
    result("recv", OWN(recv)(fd, bytes, sizeof bytes, 0));
    int copy = OWN(dup)(next);
    OWN(close)(next);
    result("recv of a duplicate", OWN(recv)(copy, bytes, sizeof bytes, 0));
    result("end", OWN(recv)(copy, bytes, sizeof bytes, 0));
    FILE *file = tmpfile();
    fputs("of a file", file);
    fflush(file);
    off_t start = 0;
    result("sendfile", OWN(sendfile)(fd, fileno(file), &start, 9));
    result("shutdown", OWN(shutdown)(fd, SHUT_WR));
    result("end", OWN(recv)(fd, bytes, sizeof bytes, 0));
    fclose(file);
    OWN(close)(copy);
    OWN(close)(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), next = connected(peer);
    result("send", OWN(send)(fd, "to the first", 12, 0));
    result("send", OWN(send)(next, "second", 6, 0));
    result("shutdown", OWN(shutdown)(next, SHUT_WR));
    char bytes[100] = "";
    result("recv", OWN(recv)(fd, bytes, sizeof bytes, MSG_WAITALL));
    say("%s", bytes);
    OWN(close)(fd);
    OWN(close)(next);
}
