/*
 * shunt.h: sockets of a Shunt engine for programs that are written for it. See docs/native.md.
 *
 * Link with -lshunt_native. Handles are numbers above 0. Every function returns a negative errno where it fails
 * (-EBADF: no such handle; -EFAULT: a null pointer where something has to be) and leaves errno alone. No function
 * raises SIGPIPE. All may be called from any thread; two calls on one stream in the same direction at once, or one
 * beside a piece that is out, are refused with -EBUSY.
 */
#ifndef SHUNT_H
#define SHUNT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This header is for libshunt_native.so.0: a program asks for the library by that name. */
#define SHUNT_VERSION_MAJOR 0

/* An engine, a socket or a set of sockets. */
typedef int64_t shunt_handle;

/* What holds of a socket, with the values of poll(2) and epoll(7). */
#define SHUNT_IN 0x001u
#define SHUNT_PRI 0x002u
#define SHUNT_OUT 0x004u
#define SHUNT_ERR 0x008u
#define SHUNT_HUP 0x010u
#define SHUNT_NVAL 0x020u
#define SHUNT_RDHUP 0x2000u

/* The version of the library. */
const char *shunt_version(void);

/* Attaches to the engine of that name, as `shunt run --engine` names it; NULL: the one that SHUNT_ENGINE names, or
 * the default one. After an engine was lost, attaches to its successor. */
shunt_handle shunt_attach(const char *name);

/* Ends a socket as close(2) does, or a set; an engine stays attached. Calls under way on it end first. */
int shunt_close(shunt_handle handle);

/* Connects. timeout_ms < 0: as long as it takes. */
shunt_handle shunt_connect(shunt_handle engine, const struct sockaddr *remote, socklen_t len, int timeout_ms);

/* Starts to connect and does not wait; local may be NULL. The socket is SHUNT_OUT when that is decided. */
shunt_handle shunt_connect_start(shunt_handle engine, const struct sockaddr *remote, socklen_t len,
                                 const struct sockaddr *local, socklen_t local_len);

/* 0: the connection stands; -EINPROGRESS: not decided yet; else why it failed. */
int shunt_connect_outcome(shunt_handle socket);

/* Listens on an address of the engine, or on ANY: all of them. */
shunt_handle shunt_listen(shunt_handle engine, const struct sockaddr *local, socklen_t len, int backlog);

/* Takes a connection. peer and len as in accept(2); both may be NULL. */
shunt_handle shunt_accept(shunt_handle listener, struct sockaddr *peer, socklen_t *len);

/* A UDP socket bound to an address of the engine, or to ANY. */
shunt_handle shunt_udp(shunt_handle engine, const struct sockaddr *local, socklen_t len);

/* Gives a UDP socket a peer. */
int shunt_udp_connect(shunt_handle socket, const struct sockaddr *peer, socklen_t len);

/* Ends directions of a connection: SHUT_RD, SHUT_WR, SHUT_RDWR. */
int shunt_shutdown(shunt_handle socket, int how);

/* Ends a connection with a reset, and closes the handle. */
int shunt_abort(shunt_handle socket);

/* How long calls on the socket wait: < 0 for ever (as it begins), 0 never (-EAGAIN), else so long (-ETIMEDOUT). */
int shunt_set_timeout(shunt_handle socket, int timeout_ms);

/* TCP_NODELAY. */
int shunt_set_nodelay(shunt_handle socket, int on);

/* Both ends, as getsockname(2) and getpeername(2) give them. */
int shunt_local_name(shunt_handle socket, struct sockaddr *name, socklen_t *len);
int shunt_peer_name(shunt_handle socket, struct sockaddr *name, socklen_t *len);

/* Send and receive with a copy. shunt_receive: 0 is the end of the stream. On UDP sockets: one datagram. */
ssize_t shunt_send(shunt_handle socket, const void *bytes, size_t len);
ssize_t shunt_receive(shunt_handle socket, void *bytes, size_t len);
ssize_t shunt_send_to(shunt_handle socket, const void *bytes, size_t len, const struct sockaddr *to,
                      socklen_t to_len);
ssize_t shunt_receive_from(shunt_handle socket, void *bytes, size_t len, struct sockaddr *from,
                           socklen_t *from_len);

/* Zero-copy send: room in the send window of a connection, at most max bytes, in up to two parts (the second is empty
 * unless the window wraps around). Returns how many bytes there are. Fill them from the start, then commit as many as
 * shall be sent (0: none). A commit of more than was reserved is -EINVAL and gives the room back. */
ssize_t shunt_reserve(shunt_handle socket, size_t max, struct iovec room[2]);
int shunt_commit(shunt_handle socket, size_t bytes);

/* Zero-copy receive: the bytes that have arrived, at most max, where they lie; 0 is the end of the stream, and nothing
 * is lent then. They may be read until they are consumed; what is not consumed comes again. Consuming more than was
 * lent is -EINVAL, and consumes nothing. */
ssize_t shunt_borrow(shunt_handle socket, size_t max, struct iovec bytes[2]);
int shunt_consume(shunt_handle socket, size_t bytes);

/* What holds now, from shared memory: no system call. */
int shunt_readiness(shunt_handle socket);

/* As poll(2), over sockets of one or more engines; with timeout_ms 0 without a system call. ERR and HUP are told
 * always, NVAL where the handle is no socket. */
struct shunt_polled {
	shunt_handle socket;
	uint32_t interest;
	uint32_t ready;
};
int shunt_poll(struct shunt_polled *polled, size_t len, int timeout_ms);

/* Sets of sockets of one engine, of which only those are looked at of which there is news; level-triggered. A closed
 * socket leaves its sets. One thread at a time (-EBUSY). In a child of fork(2) a set of the parent's is not waited on
 * (-EBADF). */
struct shunt_event {
	uint64_t token;
	uint32_t ready;
	uint32_t reserved;
};
shunt_handle shunt_poller(shunt_handle engine);
int shunt_poller_add(shunt_handle poller, shunt_handle socket, uint64_t token, uint32_t interest);
int shunt_poller_modify(shunt_handle poller, uint64_t token, uint32_t interest);
int shunt_poller_remove(shunt_handle poller, uint64_t token);
int shunt_poller_wait(shunt_handle poller, struct shunt_event *events, size_t len, int timeout_ms);

/* For a program that sleeps by itself: a descriptor for its epoll(7) or poll(2), from which nothing is read. Arm, wait
 * with timeout 0, sleep if there was nothing, disarm, wait with timeout 0. */
int shunt_poller_descriptor(shunt_handle poller);
int shunt_poller_arm(shunt_handle poller);
int shunt_poller_disarm(shunt_handle poller);

/* Send or receive on many connections without waiting, with one ring of each engine. Returns how many did something;
 * each item has its own result, as of shunt_send or shunt_receive. */
struct shunt_item {
	shunt_handle socket;
	void *data;
	size_t len;
	ssize_t result;
};
int shunt_send_many(struct shunt_item *items, size_t len);
int shunt_receive_many(struct shunt_item *items, size_t len);

#ifdef __cplusplus
}
#endif

#endif
