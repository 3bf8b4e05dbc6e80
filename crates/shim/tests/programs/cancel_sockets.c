/* pthread_cancel of threads that sleep in calls on sockets; the sockets serve others afterwards. */
#include "parity.h"
#include "asleep.h"

static volatile int cleaned;
static address_t full;

static void clean(void *argument) {
    (void)argument;
    cleaned++;
}

#define CANCELLED_IN(name, call) \
    static void *name(void *argument) { \
        int fd = *(int *)argument; \
        char bytes[1 << 16] = {0}; \
        (void)bytes; \
        (void)fd; \
        pthread_cleanup_push(clean, NULL); \
        about_to_sleep(); \
        while ((call) >= 0) { \
        } \
        pthread_cleanup_pop(0); \
        return NULL; \
    }

CANCELLED_IN(receives, recv(fd, bytes, 1, 0))
CANCELLED_IN(reads, read(fd, bytes, 1))
CANCELLED_IN(sends, send(fd, bytes, sizeof bytes, MSG_NOSIGNAL))
CANCELLED_IN(accepts, accept(fd, NULL, NULL))
CANCELLED_IN(connects, connect(socket(FAMILY, SOCK_STREAM, 0), (struct sockaddr *)&full, sizeof full))

static int wait_in_poll(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, -1);
}

static int wait_in_select(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL);
}

static int wait_in_epoll(int fd) {
    static int epoll;
    struct epoll_event wish = {.events = EPOLLIN}, found;
    if (!epoll) {
        epoll = epoll_create1(0);
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish);
    }
    return epoll_wait(epoll, &found, 1, -1);
}

CANCELLED_IN(polls, wait_in_poll(fd))
CANCELLED_IN(selects, wait_in_select(fd))
CANCELLED_IN(waits, wait_in_epoll(fd))

static void cancel(const char *what, void *(*body)(void *), int fd) {
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *value = NULL;
        cleaned = 0;
        pthread_create(&thread, NULL, body, &fd);
        await_sleep();
        pthread_cancel(thread);
        pthread_join(thread, &value);
        say("%s: cancelled %d, cleaned %d", what, value == PTHREAD_CANCELED, cleaned);
    }
}

/* One that does not want to be cancelled is not, and another time it is before it begins. */
static void *unwilling(void *argument) {
    int fd = *(int *)argument, before;
    char byte = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    about_to_sleep();
    long got = recv(fd, &byte, 1, 0);
    cleaned = got == 1 ? byte : -1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    recv(fd, &byte, 1, MSG_DONTWAIT);
    cleaned = -2;
    return NULL;
}

static void echo(const char *what, int fd) {
    char text[8] = {0};
    result(what, send(fd, "hello", 5, 0));
    result("back", recv(fd, text, 5, MSG_WAITALL));
}

static void server(int listener) {
    int fd = accepted(listener);
    char text[8];
    long got = recv(fd, text, sizeof text, 0);
    send(fd, text, (size_t)got, 0);
    int quiet = accepted(listener);
    while ((got = recv(fd, text, sizeof text, 0)) > 0)
        send(fd, text, (size_t)got, 0);
    close(fd);
    close(quiet);
}

static void client(address_t peer) {
    /* In turn: an engine of several cores does not accept in the order in which two connections came. */
    int fd = connected(peer);
    echo("before them", fd);
    int quiet = connected(peer);
    cancel("recv", receives, fd);
    cancel("read", reads, fd);
    cancel("poll", polls, fd);
    cancel("select", selects, fd);
    cancel("epoll_wait", waits, fd);
    echo("after them", fd);
    cancel("send", sends, quiet);

    pthread_t thread;
    void *value = NULL;
    pthread_create(&thread, NULL, unwilling, &fd);
    await_sleep();
    pthread_cancel(thread);
    pause_ms(20);
    send(fd, "u", 1, 0);
    pthread_join(thread, &value);
    say("unwilling: got %c, cancelled %d", cleaned, value == PTHREAD_CANCELED);
    echo("after it", fd);

    full = where;
    full.PORT = 0;
    int listener = listening(full);
    socklen_t len = sizeof full;
    getsockname(listener, (struct sockaddr *)&full, &len);
    cancel("accept", accepts, listener);
    int own = connected(full);
    worked("accepted", accept(listener, NULL, NULL));
    listen(listener, 0);
    cancel("connect", connects, -1);
    close(own);
    close(listener);
    echo("at last", fd);
    close(fd);
    close(quiet);
}
