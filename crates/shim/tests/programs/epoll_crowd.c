/* Threads sleep in an epoll instance to which others add connections, all at the same time: each connection is told of once, and nothing else. */
#include "parity.h"

enum { SOCKETS = 8, SLEEPERS = 4, ROUNDS = 40, END = 1000 };

static int sockets[SOCKETS], epoll;
static int told[SOCKETS], strange;
static pthread_barrier_t start;

static void server(int listener) {
    int fds[SOCKETS];
    for (int i = 0; i < SOCKETS; i++)
        fds[i] = accepted(listener);
    await(fds[0]);
    for (int i = 0; i < SOCKETS; i++)
        close(fds[i]);
}

static void *sleeper(void *argument) {
    struct epoll_event ready[SOCKETS];
    (void)argument;
    for (;;) {
        int count = epoll_wait(epoll, ready, SOCKETS, 5000);
        if (count <= 0)
            return "nothing";
        for (int i = 0; i < count; i++) {
            uint64_t which = ready[i].data.u64;
            if (which == END)
                return NULL;
            __atomic_add_fetch(which < SOCKETS ? &told[which] : &strange, 1, __ATOMIC_RELAXED);
        }
    }
}

static void *adder(void *argument) {
    long i = (long)argument;
    struct epoll_event wish = {.events = EPOLLOUT | EPOLLONESHOT, .data.u64 = (uint64_t)i};
    pthread_barrier_wait(&start);
    epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[i], &wish);
    return NULL;
}

static int everybody_was_told(int times) {
    for (int i = 0; i < SOCKETS; i++)
        if (__atomic_load_n(&told[i], __ATOMIC_RELAXED) < times)
            return 0;
    return 1;
}

static int sleepless;

static void one_round(int number) {
    pthread_t threads[SLEEPERS + SOCKETS];
    int tube[2];
    epoll = epoll_create1(0);
    pthread_barrier_init(&start, NULL, SOCKETS);
    for (long i = 0; i < SLEEPERS + SOCKETS; i++)
        pthread_create(&threads[i], NULL, i < SLEEPERS ? sleeper : adder, (void *)(i - SLEEPERS));
    for (int i = SLEEPERS; i < SLEEPERS + SOCKETS; i++)
        pthread_join(threads[i], NULL);
    double end = now() + 5;
    while (!everybody_was_told(number) && now() < end)
        pause_ms(1);
    if (pipe(tube) < 0)
        exit(1);
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = END};
    epoll_ctl(epoll, EPOLL_CTL_ADD, tube[0], &wish);
    if (write(tube[1], "x", 1) != 1)
        exit(1);
    for (int i = 0; i < SLEEPERS; i++) {
        void *seen;
        pthread_join(threads[i], &seen);
        sleepless += seen != NULL;
    }
    close(tube[0]);
    close(tube[1]);
    close(epoll);
}

static void client(address_t peer) {
    for (int i = 0; i < SOCKETS; i++)
        sockets[i] = connected(peer);
    for (int number = 1; number <= ROUNDS; number++)
        one_round(number);
    for (int i = 0; i < SOCKETS; i++)
        say("connection %d was told of %d times", i, told[i]);
    say("strange events: %d, threads that heard of nothing: %d", strange, sleepless);
    step(sockets[0]);
    for (int i = 0; i < SOCKETS; i++)
        close(sockets[i]);
}
