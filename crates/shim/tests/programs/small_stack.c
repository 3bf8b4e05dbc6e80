/* A thread whose stack is small makes sockets, one of a number far above all others. */
#include "parity.h"
#include <sys/resource.h>

enum { STACK_BYTES = 64 * 1024, HIGH = 2000 };

static void server(int listener) {
    int fd = accepted(listener);
    char text[8];
    long count;
    while ((count = recv(fd, text, sizeof text, 0)) > 0)
        send(fd, text, (size_t)count, 0);
    close(fd);
    say("served");
}

static address_t to;

static void *visitor(void *argument) {
    (void)argument;
    int low = connected(to), fd = fcntl(low, F_DUPFD, HIGH);
    char text[8] = {0};
    say("number %d", fd);
    close(low);
    result("send", send(fd, "small", 5, 0));
    result("recv", recv(fd, text, 5, MSG_WAITALL));
    say("text %s", text);
    result("shutdown", shutdown(fd, SHUT_WR));
    result("end", recv(fd, text, 1, 0));
    close(fd);
    return NULL;
}

static void client(address_t peer) {
    pthread_t thread;
    pthread_attr_t attributes;
    to = peer;
    struct rlimit limit = {2 * HIGH, 2 * HIGH};
    result("limit", setrlimit(RLIMIT_NOFILE, &limit));
    pthread_attr_init(&attributes);
    result("size", pthread_attr_setstacksize(&attributes, STACK_BYTES));
    result("create", pthread_create(&thread, &attributes, visitor, NULL));
    pthread_join(thread, NULL);
}
