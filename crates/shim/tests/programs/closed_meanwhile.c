/* A thread closes the descriptor on which another one waits with a time-out: the wait ends. With what is not compared: Linux keeps
 * the file for the call, which waits until its time is over. */
#include "parity.h"
#include "asleep.h"

static void server(int listener) {
    /* One byte, so that there is something to peek at. */
    int fd = accepted(listener);
    await(fd);
    step(fd);
    char byte;
    result("end", recv(fd, &byte, 1, 0));
    close(fd);
}

struct waiter {
    int fd;
    long (*call)(int fd);
};

static long accepting(int fd) { return accept(fd, NULL, NULL); }

static long hearing(int fd) {
    char byte;
    address_t from;
    socklen_t len = sizeof from;
    return recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from, &len);
}

static long peeking(int fd) {
    char text[8];
    return recv(fd, text, sizeof text, MSG_PEEK | MSG_WAITALL);
}

static long receiving(int fd) {
    char text[8];
    return recv(fd, text, sizeof text, MSG_WAITALL);
}

static void *waiting(void *argument) {
    struct waiter *waiter = argument;
    about_to_sleep();
    return (void *)waiter->call(waiter->fd);
}

static void closed(const char *what, int fd, long (*call)(int)) {
    struct timeval time = {1, 0};
    struct waiter waiter = {fd, call};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    pthread_t thread;
    pthread_create(&thread, NULL, waiting, &waiter);
    await_sleep();
    result(what, close(fd));
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    say("who waits comes back: %s", error_name(pthread_timedjoin_np(thread, NULL, &until)));
}

static void client(address_t peer) {
    address_t at = peer;
    at.PORT = 0;
    closed("accept", listening(at), accepting);
    int datagrams = socket(FAMILY, SOCK_DGRAM, 0);
    if (bind(datagrams, (struct sockaddr *)&at, sizeof at) < 0)
        exit(1);
    closed("recvfrom", datagrams, hearing);
    datagrams = socket(FAMILY, SOCK_DGRAM, 0);
    if (bind(datagrams, (struct sockaddr *)&at, sizeof at) < 0)
        exit(1);
    closed("recv", datagrams, receiving);
    int fd = connected(peer);
    step(fd);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("a byte", poll(&entry, 1, 5000));
    int other = dup(fd);
    closed("peek", fd, peeking);
    await(other);
    closed("recv of a connection", other, receiving);
}
