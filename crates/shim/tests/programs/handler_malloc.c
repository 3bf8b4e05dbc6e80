/* Handlers that make socket calls, the first of their thread, while that is in malloc. */
#include "parity.h"

enum { THREADS = 60, HANDLERS = 10 };

static volatile int fd;
static __thread volatile sig_atomic_t handled, good;
static address_t to;

static void on_signal(int number) {
    (void)number;
    int saved = errno;
    char byte = 'm';
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    if (send(fd, &byte, 1, 0) == 1 && poll(&entry, 1, 20000) == 1 && recv(fd, &byte, 1, 0) == 1)
        good = good + 1;
    handled = handled + 1;
    errno = saved;
}

static void on_new_socket(int number) {
    int saved = errno;
    int own = socket(FAMILY, SOCK_STREAM, 0);
    if (connect(own, (struct sockaddr *)&to, sizeof to) == 0)
        on_signal(number);
    close(own);
    errno = saved;
}

static volatile int is_over;

static void *allocates(void *argument) {
    void *blocks[64] = {0};
    for (unsigned i = 0; handled < HANDLERS; i++) {
        free(blocks[i % 64]);
        /* Too long for the caches of the thread: under the lock of the arena. */
        blocks[i % 64] = malloc(2000 + i % 3000);
    }
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
    *(int *)argument = good;
    is_over = 1;
    return NULL;
}

static void run(const char *what, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    long all = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        int answered = 0;
        is_over = 0;
        pthread_create(&thread, NULL, allocates, &answered);
        while (!is_over) {
            pthread_kill(thread, SIGUSR1);
            pause_ms(1);
        }
        pthread_join(thread, NULL);
        all += answered >= HANDLERS;
    }
    say("%s: in %ld threads", what, all);
}

static void server(int listener) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    int first = accepted(listener);
    nonblocking(listener);
    char byte;
    for (;;) {
        struct pollfd both[] = {{.fd = first, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
        poll(both, 2, -1);
        int other = both[1].revents ? accept(listener, NULL, NULL) : -1;
        if (other >= 0)
            close(other);
        if (!both[0].revents)
            continue;
        if (recv(first, &byte, 1, 0) != 1)
            break;
        send(first, &byte, 1, 0);
    }
    close(first);
}

static void client(address_t peer) {
    to = peer;
    fd = connected(peer);
    run("calls", on_signal);
    run("sockets", on_new_socket);
    close(fd);
}
