/* pthread_cancel of threads that sleep in libc: in read of a pipe, in poll and in epoll_wait. */
#include "parity.h"
#include "asleep.h"

static int tube[2], cleaned;

static void clean(void *argument) {
    (void)argument;
    cleaned++;
}

static void *reads(void *argument) {
    char byte;
    pthread_cleanup_push(clean, NULL);
    about_to_sleep();
    if (read(tube[0], &byte, 1) < 0)
        perror("read");
    pthread_cleanup_pop(0);
    return argument;
}

static void *polls(void *argument) {
    struct pollfd entry = {.fd = tube[0], .events = POLLIN};
    pthread_cleanup_push(clean, NULL);
    about_to_sleep();
    poll(&entry, 1, -1);
    pthread_cleanup_pop(0);
    return argument;
}

static void *waits(void *argument) {
    struct epoll_event wish = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, tube[0], &wish);
    pthread_cleanup_push(clean, NULL);
    about_to_sleep();
    epoll_wait(epoll, &wish, 1, -1);
    pthread_cleanup_pop(0);
    return argument;
}

static void cancel(const char *what, void *(*body)(void *)) {
    pthread_t thread;
    void *value = NULL;
    pthread_create(&thread, NULL, body, NULL);
    await_sleep();
    pthread_cancel(thread);
    pthread_join(thread, &value);
    say("%s: cancelled %d, cleaned %d", what, value == PTHREAD_CANCELED, cleaned);
}

static void server(int listener) { close(accepted(listener)); }

static void client(address_t peer) {
    close(connected(peer));
    if (pipe(tube) < 0)
        exit(1);
    cancel("read", reads);
    cancel("poll", polls);
    cancel("epoll_wait", waits);
}
