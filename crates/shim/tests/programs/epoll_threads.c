/* A thread sleeps in epoll_wait while another adds the socket, connects it, and wakes it by a pipe. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    await(fd);
    pause_ms(50);
    send(fd, "late", 4, 0);
    await(fd);
    close(fd);
}

static int epoll;

static void *sleeper(void *argument) {
    struct epoll_event ready[4];
    (void)argument;
    long count = epoll_wait(epoll, ready, 4, 3000);
    return (void *)(count > 0 ? (long)ready[0].data.u64 : -1 - count);
}

static void client(address_t peer) {
    epoll = epoll_create1(0);
    pthread_t thread;
    void *seen;
    char text[8];
    pthread_create(&thread, NULL, sleeper, NULL);
    pause_ms(100);
    int fd = connected(peer);
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 7};
    result("add while a thread sleeps", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish));
    step(fd);
    pthread_join(thread, &seen);
    say("the thread saw %ld", (long)seen);
    result("recv", recv(fd, text, sizeof text, 0));

    int tube[2];
    if (pipe(tube) < 0)
        exit(1);
    pthread_create(&thread, NULL, sleeper, NULL);
    pause_ms(50);
    wish.data.u64 = 8;
    result("add a pipe while a thread sleeps", epoll_ctl(epoll, EPOLL_CTL_ADD, tube[0], &wish));
    worked("write", write(tube[1], "x", 1));
    pthread_join(thread, &seen);
    say("the thread saw %ld", (long)seen);

    struct pollfd entry = {.fd = epoll, .events = POLLIN};
    result("poll of the epoll", poll(&entry, 1, 0));
    worked("drain", read(tube[0], text, 1));
    result("poll of the epoll", poll(&entry, 1, 0));
    step(fd);
    result("poll until the end comes", poll(&entry, 1, 2000));
    close(fd);
    close(epoll);
}
