/*
 * What a careless or hostile caller does, over one engine: every call is an errno, nothing else happens.
 *
 *   hostile ADDRESS        an address of the engine that SHUNT_ENGINE names
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <shunt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int faults;

static void expect_at(int line, const char *what, long long result, long long wanted)
{
	if (result != wanted) {
		fprintf(stderr, "line %d: %s is %lld, not %lld\n", line, what, result, wanted);
		faults++;
	}
}
#define EXPECT(call, wanted) expect_at(__LINE__, #call, (long long)(call), (long long)(wanted))

static shunt_handle good(int line, shunt_handle handle)
{
	if (handle <= 0) {
		fprintf(stderr, "line %d: %s\n", line, strerror((int)-handle));
		exit(1);
	}
	return handle;
}
#define GOOD(call) good(__LINE__, call)

static void bad_handles(shunt_handle engine)
{
	const shunt_handle bad[] = {0, -1, 1, INT64_MAX, INT64_MIN, engine + 1, engine + (1LL << 32)};
	struct iovec parts[2];
	char byte = 0;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		shunt_handle h = bad[i];
		EXPECT(shunt_close(h), -EBADF);
		EXPECT(shunt_send(h, &byte, 1), -EBADF);
		EXPECT(shunt_receive(h, &byte, 1), -EBADF);
		EXPECT(shunt_reserve(h, 1, parts), -EBADF);
		EXPECT(shunt_commit(h, 0), -EBADF);
		EXPECT(shunt_borrow(h, 1, parts), -EBADF);
		EXPECT(shunt_consume(h, 0), -EBADF);
		EXPECT(shunt_readiness(h), -EBADF);
		EXPECT(shunt_accept(h, NULL, NULL), -EBADF);
		EXPECT(shunt_shutdown(h, SHUT_RD), -EBADF);
		EXPECT(shunt_abort(h), -EBADF);
		EXPECT(shunt_poller(h), -EBADF);
		EXPECT(shunt_poller_disarm(h), -EBADF);
	}
	EXPECT(shunt_send(engine, &byte, 1), -ENOTSOCK);
	EXPECT(shunt_poller_arm(engine), -EINVAL);
}

static void bad_arguments(shunt_handle engine, const struct sockaddr *name, socklen_t len)
{
	struct sockaddr_in other = {.sin_family = AF_UNIX};

	EXPECT(shunt_listen(engine, NULL, len, 1), -EFAULT);
	EXPECT(shunt_listen(engine, name, 1, 1), -EINVAL);
	EXPECT(shunt_listen(engine, (struct sockaddr *)&other, sizeof other, 1), -EAFNOSUPPORT);
	EXPECT(shunt_connect(engine, NULL, 0, 0), -EFAULT);
	EXPECT(shunt_attach("@shunt/nobody/here"), -ECONNREFUSED);
	EXPECT(shunt_poll(NULL, 1, 0), -EFAULT);
	EXPECT(shunt_poll(NULL, SIZE_MAX, 0), -EINVAL);
	EXPECT(shunt_poll(NULL, 0, 0), 0);
	EXPECT(shunt_send_many(NULL, 3), -EFAULT);
}

static void pieces(shunt_handle near, shunt_handle far)
{
	struct iovec room[2], bytes[2];
	char text[8];

	EXPECT(shunt_commit(near, 0), -EINVAL);
	EXPECT(shunt_consume(far, 0), -EINVAL);
	EXPECT(shunt_reserve(near, 5, NULL), -EFAULT);
	EXPECT(shunt_reserve(near, 5, room), 5);
	EXPECT(shunt_reserve(near, 5, room), -EBUSY);
	EXPECT(shunt_send(near, "x", 1), -EBUSY);
	EXPECT(shunt_commit(near, 6), -EINVAL);
	EXPECT(shunt_commit(near, 5), -EINVAL);
	EXPECT(shunt_reserve(near, 5, room), 5);
	memcpy(room[0].iov_base, "hello", 5);
	EXPECT(shunt_commit(near, 5), 0);
	EXPECT(shunt_borrow(far, SIZE_MAX, bytes), 5);
	EXPECT(memcmp(bytes[0].iov_base, "hello", 5), 0);
	EXPECT(shunt_receive(far, text, sizeof text), -EBUSY);
	EXPECT(shunt_consume(far, 6), -EINVAL);
	EXPECT(shunt_borrow(far, 2, bytes), 2);
	EXPECT(shunt_consume(far, 2), 0);
	EXPECT(shunt_send(near, NULL, 1), -EFAULT);
	EXPECT(shunt_send(near, text, SIZE_MAX), -EINVAL);
	EXPECT(shunt_receive(far, NULL, 8), -EFAULT);
	EXPECT(shunt_receive(far, text, sizeof text), 3);
	EXPECT(memcmp(text, "llo", 3), 0);
	EXPECT(shunt_set_timeout(far, 0), 0);
	EXPECT(shunt_borrow(far, 1, bytes), -EAGAIN);
	EXPECT(shunt_set_timeout(far, 5), 0);
	EXPECT(shunt_borrow(far, 1, bytes), -ETIMEDOUT);
	EXPECT(shunt_shutdown(near, 7), -EINVAL);
}

static void sets(shunt_handle engine, shunt_handle near, shunt_handle far)
{
	struct shunt_polled polled[3] = {{near, SHUNT_OUT, 0}, {far, SHUNT_IN, 0}, {engine, SHUNT_IN, 0}};
	struct shunt_item items[2] = {{near, "ab", 2, 0}, {engine, "cd", 2, 0}};
	struct shunt_event events[4];
	char text[8];

	EXPECT(shunt_poll(polled, 3, -1), 2);
	EXPECT(polled[0].ready, SHUNT_OUT);
	EXPECT(polled[1].ready, 0);
	EXPECT(polled[2].ready, SHUNT_NVAL);
	polled[0].interest = 0x8000;
	EXPECT(shunt_poll(polled, 1, 0), -EINVAL);
	shunt_handle set = GOOD(shunt_poller(engine));
	EXPECT(shunt_poller_add(set, engine, 1, SHUNT_IN), -ENOTSOCK);
	EXPECT(shunt_poller_add(set, far, 1, 0x8000), -EINVAL);
	EXPECT(shunt_poller_add(set, far, 1, SHUNT_IN), 0);
	EXPECT(shunt_poller_add(set, far, 1, SHUNT_IN), -EEXIST);
	EXPECT(shunt_poller_wait(set, events, 4, 0), 0);
	EXPECT(shunt_poller_wait(set, NULL, 4, 0), -EFAULT);
	EXPECT(shunt_poller_arm(set), 0);
	EXPECT(shunt_poller_wait(set, events, 4, 0), 0);
	EXPECT(shunt_send_many(items, 2), 1);
	EXPECT(items[0].result, 2);
	EXPECT(items[1].result, -ENOTSOCK);
	struct pollfd own = {.fd = shunt_poller_descriptor(set), .events = POLLIN};
	EXPECT(poll(&own, 1, 30000), 1);
	EXPECT(shunt_poller_disarm(set), 0);
	EXPECT(shunt_poller_wait(set, events, 4, 30000), 1);
	EXPECT(events[0].token, 1);
	EXPECT(events[0].ready, SHUNT_IN);
	struct shunt_item back = {far, text, sizeof text, 0};
	EXPECT(shunt_receive_many(&back, 1), 1);
	EXPECT(back.result, 2);
	EXPECT(shunt_poller_remove(set, 2), -ENOENT);
	EXPECT(shunt_close(set), 0);
	EXPECT(shunt_poller_arm(set), -EBADF);
}

static void datagrams(shunt_handle engine, struct sockaddr_in any)
{
	struct sockaddr_in name;
	socklen_t len = sizeof name;
	char text[8];

	shunt_handle one = GOOD(shunt_udp(engine, (struct sockaddr *)&any, sizeof any));
	EXPECT(shunt_local_name(one, (struct sockaddr *)&name, NULL), -EFAULT);
	EXPECT(shunt_local_name(one, (struct sockaddr *)&name, &len), 0);
	EXPECT(shunt_send(one, "x", 1), -EDESTADDRREQ);
	EXPECT(shunt_send_to(one, "self", 4, (struct sockaddr *)&name, len), 4);
	EXPECT(shunt_receive_from(one, text, sizeof text, (struct sockaddr *)&any, &len), 4);
	EXPECT(any.sin_port, name.sin_port);
	EXPECT(shunt_accept(one, NULL, NULL), -EINVAL);
	EXPECT(shunt_shutdown(one, SHUT_WR), -EOPNOTSUPP);
	EXPECT(shunt_close(one), 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = {.sin_family = AF_INET};
	socklen_t len = sizeof name;

	if (argc != 2 || inet_pton(AF_INET, argv[1], &name.sin_addr) != 1)
		return 2;
	shunt_handle engine = GOOD(shunt_attach(NULL));
	bad_handles(engine);
	bad_arguments(engine, (struct sockaddr *)&name, len);
	datagrams(engine, name);
	shunt_handle listener = GOOD(shunt_listen(engine, (struct sockaddr *)&name, len, 4));
	EXPECT(shunt_local_name(listener, (struct sockaddr *)&name, &len), 0);
	shunt_handle near = GOOD(shunt_connect(engine, (struct sockaddr *)&name, len, -1));
	shunt_handle far = GOOD(shunt_accept(listener, NULL, NULL));
	pieces(near, far);
	sets(engine, near, far);
	EXPECT(shunt_close(near), 0);
	EXPECT(shunt_close(near), -EBADF);
	EXPECT(shunt_abort(far), 0);
	EXPECT(shunt_close(far), -EBADF);
	EXPECT(shunt_close(listener), 0);
	printf("%d faults\n", faults);
	return faults != 0;
}
