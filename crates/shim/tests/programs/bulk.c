/* Eight megabytes each way at once, in odd pieces, checked byte by byte. */
#include "parity.h"

enum { TOTAL = 8 << 20 };

static unsigned char byte_at(long position) { return (unsigned char)(position * 7 + position / 251); }

static void *writer(void *argument) {
    int fd = (int)(long)argument;
    unsigned char block[10007];
    for (long done = 0; done < TOTAL;) {
        long want = TOTAL - done < (long)sizeof block ? TOTAL - done : (long)sizeof block;
        for (long i = 0; i < want; i++)
            block[i] = byte_at(done + i);
        long count = send(fd, block, (size_t)want, 0);
        if (count <= 0)
            break;
        done += count;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void both_ways(int fd) {
    pthread_t thread;
    pthread_create(&thread, NULL, writer, (void *)(long)fd);
    unsigned char block[7919];
    long total = 0, wrong = 0, count;
    while ((count = recv(fd, block, sizeof block, 0)) > 0) {
        for (long i = 0; i < count; i++)
            wrong += block[i] != byte_at(total + i);
        total += count;
    }
    pthread_join(thread, NULL);
    say("received %ld, wrong %ld", total, wrong);
    close(fd);
}

static void server(int listener) { both_ways(accepted(listener)); }

static void client(address_t peer) { both_ways(connected(peer)); }
