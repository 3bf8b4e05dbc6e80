/*
 * An epoll set that is changed as libuv 1.50 and later change it: through a ring of io_uring that syscall(2) makes, and by
 * epoll_ctl(2) where there is none. What waits in the set is told either way.
 */
#include "parity.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* Each half has one. */
static __thread struct {
    int fd;
    char *rings;
    struct io_uring_sqe *entries;
    struct io_uring_params setup;
} ring;

static void make_ring(void) {
    ring.fd = (int)syscall(SYS_io_uring_setup, 8, &ring.setup);
    if (ring.fd < 0)
        return;
    size_t len = ring.setup.sq_off.array + ring.setup.sq_entries * sizeof(unsigned);
    size_t completions = ring.setup.cq_off.cqes + ring.setup.cq_entries * sizeof(struct io_uring_cqe);
    if (len < completions)
        len = completions;
    int access = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    ring.rings = mmap(NULL, len, access, flags, ring.fd, IORING_OFF_SQ_RING);
    len = ring.setup.sq_entries * sizeof *ring.entries;
    ring.entries = mmap(NULL, len, access, flags, ring.fd, IORING_OFF_SQES);
    if (ring.rings == MAP_FAILED || (void *)ring.entries == MAP_FAILED)
        exit(2);
}

static unsigned *word(unsigned offset) { return (unsigned *)(ring.rings + offset); }

/* As epoll_ctl(2), by the ring if there is one. */
static int change(int set, int how, int fd, struct epoll_event *event) {
    if (ring.fd < 0)
        return epoll_ctl(set, how, fd, event);
    unsigned *tail = word(ring.setup.sq_off.tail), slot = *tail & *word(ring.setup.sq_off.ring_mask);
    struct io_uring_sqe *entry = &ring.entries[slot];
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_EPOLL_CTL;
    entry->fd = set;
    entry->off = (unsigned long)fd;
    entry->len = (unsigned)how;
    entry->addr = (unsigned long)event;
    word(ring.setup.sq_off.array)[slot] = slot;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        return -1;
    unsigned *head = word(ring.setup.cq_off.head);
    struct io_uring_cqe *all = (struct io_uring_cqe *)(ring.rings + ring.setup.cq_off.cqes);
    int done = all[*head & *word(ring.setup.cq_off.ring_mask)].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    if (done >= 0)
        return 0;
    errno = -done;
    return -1;
}

static void add(const char *what, int set, int fd, unsigned wanted) {
    struct epoll_event event = {.events = wanted, .data.fd = fd};
    result(what, change(set, EPOLL_CTL_ADD, fd, &event));
}

static void told(const char *what, int set, int fd) {
    struct epoll_event event = {0};
    result(what, epoll_wait(set, &event, 1, 30000));
    events(what, event.events);
    say("of it %d", event.data.fd == fd);
}

static void server(int listener) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    make_ring();
    add("listener", set, listener, EPOLLIN);
    told("a connection", set, listener);
    int fd = accepted(listener);
    add("connection", set, fd, EPOLLIN);
    result("listener again", change(set, EPOLL_CTL_DEL, listener, NULL));
    told("bytes", set, fd);
    char text[8] = {0};
    result("read", read(fd, text, sizeof text));
    say("text %s", text);
    struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
    result("to write", change(set, EPOLL_CTL_MOD, fd, &event));
    told("room", set, fd);
    result("write", write(fd, "back", 4));
    event.events = EPOLLIN;
    result("to read", change(set, EPOLL_CTL_MOD, fd, &event));
    told("end", set, fd);
    result("nothing", read(fd, text, sizeof text));
    result("twice", change(set, EPOLL_CTL_ADD, fd, &event));
    close(fd);
    close(set);
}

static void client(address_t peer) {
    int fd = connected(peer), set = epoll_create1(EPOLL_CLOEXEC);
    make_ring();
    add("connection", set, fd, EPOLLIN);
    step(fd);
    told("bytes", set, fd);
    char text[8] = {0};
    result("read", read(fd, text, sizeof text));
    say("text %s", text);
    close(fd);
    close(set);
}
