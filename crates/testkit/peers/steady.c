/*
 * Traffic on connections to an echo server that must not notice what else happens: every byte that comes back is
 * compared with what was sent.
 *
 *   steady ADDRESS PORT ROUNDS
 *
 * Says `ready` once two connections have exchanged bytes. SIGUSR1: opens one more, and says `another` once it has
 * exchanged bytes, too. SIGHUP: closes descriptors twice, ROUNDS times: one thread connects, another closes the same
 * number meanwhile; says how its calls ended. SIGUSR2: ends every connection and says how each went.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 8
#define PIECE 8192
/* Between two exchanges once descriptors have been closed twice: that test waits for a minute afterwards. */
#define REST_US 5000

static struct sockaddr_in peer;
static atomic_int stopping;

struct traffic {
    pthread_t thread;
    unsigned seed;
    int fd;
    atomic_ulong exchanged;
    int error;
};

static struct traffic all[CONNECTIONS];

static int fail(struct traffic *own, int error) {
    own->error = error;
    return 0;
}

static int exchange(struct traffic *own) {
    unsigned char sent[PIECE], back[PIECE];
    for (int i = 0; i < PIECE; i++) {
        own->seed = own->seed * 1103515245 + 12345;
        sent[i] = (unsigned char)(own->seed >> 16);
    }
    for (int done = 0; done < PIECE;) {
        ssize_t bytes = send(own->fd, sent + done, (size_t)(PIECE - done), MSG_NOSIGNAL);
        if (bytes <= 0)
            return fail(own, errno);
        done += (int)bytes;
    }
    for (int done = 0; done < PIECE;) {
        ssize_t bytes = recv(own->fd, back + done, (size_t)(PIECE - done), 0);
        if (bytes <= 0)
            return fail(own, bytes ? errno : EPIPE);
        done += (int)bytes;
    }
    if (memcmp(sent, back, PIECE))
        return fail(own, EILSEQ);
    atomic_fetch_add(&own->exchanged, PIECE);
    return 1;
}

static atomic_int resting;

static void *run(void *argument) {
    struct traffic *own = argument;
    own->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (own->fd < 0 || connect(own->fd, (struct sockaddr *)&peer, sizeof peer) < 0) {
        fail(own, errno);
        return NULL;
    }
    while (!atomic_load(&stopping) && exchange(own))
        if (atomic_load(&resting))
            usleep(REST_US);
    char byte;
    if (!own->error && (shutdown(own->fd, SHUT_WR) < 0 || recv(own->fd, &byte, 1, 0) != 0))
        fail(own, errno ? errno : EBADMSG);
    return NULL;
}

static int count;

/* One more connection, until it has exchanged bytes or has failed. */
static void begin(void) {
    struct traffic *own = &all[count++];
    own->seed = (unsigned)count * 7919;
    pthread_create(&own->thread, NULL, run, own);
    while (!atomic_load(&own->exchanged) && !*(volatile int *)&own->error)
        usleep(1000);
}

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int found = 0;
    while (readdir(folder))
        found++;
    closedir(folder);
    return found;
}

static atomic_int shared = -1, rounds_left;

/* Closes what the other thread works with, after more or fewer turns of a loop. */
static void *close_again(void *argument) {
    unsigned seed = 1;
    (void)argument;
    while (atomic_load(&rounds_left) > 0) {
        int fd = atomic_exchange(&shared, -1);
        if (fd < 0)
            continue;
        seed = seed * 1103515245 + 12345;
        for (volatile unsigned turns = (seed >> 16) % 30000; turns; turns--) {
        }
        close(fd);
    }
    return NULL;
}

static void close_twice(int rounds) {
    int refused = 0, other = 0, before = descriptors();
    pthread_t thread;
    atomic_store(&rounds_left, rounds);
    pthread_create(&thread, NULL, close_again, NULL);
    for (int i = 0; i < rounds; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        atomic_store(&shared, fd);
        if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0) {
            if (errno == EBADF)
                refused++;
            else if (!other)
                other = errno;
        }
        while (atomic_load(&shared) >= 0) {
        }
        close(fd);
    }
    atomic_store(&rounds_left, 0);
    pthread_join(thread, NULL);
    atomic_store(&resting, 1);
    int after = descriptors();
    printf("closed twice; another error: %s; refused: %d; leaked: %d\n", other ? strerrorname_np(other) : "none",
           refused > 0, after > before + 4 ? after - before : 0);
}

int main(int words_count, char **words) {
    if (words_count != 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    peer.sin_family = AF_INET;
    inet_pton(AF_INET, words[1], &peer.sin_addr);
    peer.sin_port = htons((unsigned short)atoi(words[2]));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    begin();
    begin();
    puts("ready");
    for (int signal = 0; !sigwait(&set, &signal) && signal != SIGUSR2;) {
        if (signal == SIGHUP) {
            close_twice(atoi(words[3]));
        } else if (count < CONNECTIONS) {
            begin();
            puts("another");
        }
    }
    atomic_store(&stopping, 1);
    for (int i = 0; i < count; i++) {
        pthread_join(all[i].thread, NULL);
        printf("connection %d: %s, exchanged: %d\n", i, all[i].error ? strerrorname_np(all[i].error) : "well",
               all[i].exchanged > 0);
    }
    return 0;
}
