/* An epoll instance inside another one: who is told of what, level and edge, once, and what is not allowed. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    for (int i = 0; i < 6; i++) {
        await(fd);
        step(fd);
    }
    close(fd);
}

static int add(int epoll, int fd, unsigned mask, int data) {
    struct epoll_event event = {.events = mask, .data.u32 = (unsigned)data};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* What an instance reports within so many milliseconds. */
static void wait_for(const char *what, int epoll, int timeout_ms) {
    struct epoll_event events[4];
    int count = epoll_wait(epoll, events, 4, timeout_ms);
    say("%s: %d", what, count);
    for (int i = 0; i < count; i++)
        say("  %u:%s%s%s%s", events[i].data.u32, events[i].events & EPOLLIN ? " IN" : "",
            events[i].events & EPOLLOUT ? " OUT" : "", events[i].events & EPOLLRDHUP ? " RDHUP" : "",
            events[i].events & EPOLLHUP ? " HUP" : "");
}

struct late {
    int inner, fd;
};

static void *add_later(void *argument) {
    struct late *late = argument;
    pause_ms(50);
    add(late->inner, late->fd, EPOLLOUT, 9);
    return NULL;
}

static void client(address_t peer) {
    int fd = connected(peer);
    int inner = epoll_create1(0), outer = epoll_create1(0), outermost = epoll_create1(0);
    result("inner into outer", add(outer, inner, EPOLLIN, 1));
    result("outer into outermost", add(outermost, outer, EPOLLIN, 2));
    result("a loop", add(inner, outermost, EPOLLIN, 3));
    result("itself", add(inner, inner, EPOLLIN, 3));
    result("again", add(outer, inner, EPOLLIN, 1));
    wait_for("empty", outer, 0);

    /* Somebody sleeps outside while the inner instance gets its first socket. */
    pthread_t thread;
    struct late late = {inner, fd};
    pthread_create(&thread, NULL, add_later, &late);
    wait_for("late", outermost, 10000);
    pthread_join(thread, NULL);
    wait_for("inner", inner, 0);

    struct epoll_event in = {.events = EPOLLIN, .data.u32 = 9};
    result("only input", epoll_ctl(inner, EPOLL_CTL_MOD, fd, &in));
    wait_for("nothing", outermost, 0);
    poll_now("nothing", outermost, 0);
    step(fd);
    wait_for("input", outermost, 10000);
    poll_now("input", outermost, 0);
    wait_for("input between", outer, 0);
    wait_for("input inside", inner, 0);
    wait_for("still", outermost, 0);
    await(fd);
    wait_for("read", outermost, 0);
    wait_for("read inside", inner, 0);
    poll_now("read", outer, 0);

    struct epoll_event once = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = 5};
    result("once", epoll_ctl(outer, EPOLL_CTL_MOD, inner, &once));
    step(fd);
    wait_for("once", outer, 10000);
    wait_for("spent", outer, 0);
    wait_for("inside", inner, 0);
    await(fd);
    result("armed", epoll_ctl(outer, EPOLL_CTL_MOD, inner, &once));
    wait_for("nothing", outer, 0);
    step(fd);
    wait_for("once more", outer, 10000);
    await(fd);

    /* A pipe in the inner instance is the kernel's alone. */
    int pipes[2];
    in.events = EPOLLIN, in.data.u32 = 1;
    result("input again", epoll_ctl(outer, EPOLL_CTL_MOD, inner, &in));
    result("pipe", pipe(pipes));
    result("add pipe", add(inner, pipes[0], EPOLLIN, 7));
    wait_for("silent pipe", outer, 0);
    result("write", write(pipes[1], "x", 1));
    wait_for("pipe", outer, 10000);
    wait_for("pipe inside", inner, 0);
    step(fd);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 10000);
    wait_for("both", outer, 0);
    await(fd);
    wait_for("pipe alone", outermost, 0);

    result("read the pipe", read(pipes[0], &once, 1));
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET, .data.u32 = 6};
    result("edge", epoll_ctl(outer, EPOLL_CTL_MOD, inner, &edge));
    wait_for("no edge", outer, 0);
    for (int i = 0; i < 2; i++) {
        step(fd);
        wait_for("an edge", outer, 10000);
        await(fd);
    }
    result("level", epoll_ctl(outer, EPOLL_CTL_MOD, inner, &in));
    result("write", write(pipes[1], "x", 1));
    result("out of outer", epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL));
    result("once more out", epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL));
    wait_for("apart", outer, 0);
    result("into outermost", add(outermost, inner, EPOLLIN, 4));
    wait_for("directly", outermost, 0);
    close(inner);
    wait_for("closed", outermost, 0);
    close(fd);
    close(outer);
    close(outermost);
    close(pipes[0]);
    close(pipes[1]);
}
