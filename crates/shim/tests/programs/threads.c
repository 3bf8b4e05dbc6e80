/* Many threads with a connection each, all at once; two threads on one connection. */
#include "parity.h"

enum { THREADS = 8, ROUNDS = 200 };

static void *echo(void *argument) {
    int fd = (int)(long)argument;
    char text[64];
    long count;
    while ((count = recv(fd, text, sizeof text, 0)) > 0)
        send(fd, text, (size_t)count, 0);
    close(fd);
    return NULL;
}

static void server(int listener) {
    pthread_t threads[THREADS + 1];
    for (int i = 0; i <= THREADS; i++)
        pthread_create(&threads[i], NULL, echo, (void *)(long)accepted(listener));
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    say("served");
}

static address_t to;

static void *visitor(void *argument) {
    int fd = connected(to);
    long good = 0;
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
        char sent[32], got[32];
        snprintf(sent, sizeof sent, "round %d of %p", round, (void *)&round);
        if (send(fd, sent, sizeof sent, 0) == sizeof sent
            && recv(fd, got, sizeof got, MSG_WAITALL) == sizeof got && !memcmp(sent, got, sizeof got))
            good++;
    }
    close(fd);
    return (void *)good;
}

static void *reader(void *argument) {
    int fd = (int)(long)argument;
    char text[256];
    long total = 0, count;
    while ((count = recv(fd, text, sizeof text, 0)) > 0)
        total += count;
    return (void *)total;
}

static void client(address_t peer) {
    pthread_t threads[THREADS], other;
    long good = 0;
    void *value;
    to = peer;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, visitor, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &value);
        good += (long)value;
    }
    say("good rounds %ld", good);
    int fd = connected(peer);
    pthread_create(&other, NULL, reader, (void *)(long)fd);
    for (int i = 0; i < 1000; i++)
        send(fd, "0123456789", 10, 0);
    shutdown(fd, SHUT_WR);
    pthread_join(other, &value);
    say("read by the other thread %ld", (long)value);
    close(fd);
}
