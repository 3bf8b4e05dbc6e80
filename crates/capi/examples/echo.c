/*
 * An echo server and its client over Shunt's native interface.
 *
 *   echo server ADDRESS PORT            sends everything back, to one connection after the other, for ever
 *   echo client ADDRESS PORT BYTES      sends that many and checks what comes back
 */
#include <arpa/inet.h>
#include <shunt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long long checked(const char *what, long long result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
		exit(1);
	}
	return result;
}

/* From window to window: the one copy is this program's own. */
static void serve(shunt_handle peer)
{
	struct iovec in[2], out[2];
	ssize_t got;

	while ((got = shunt_borrow(peer, 65536, in)) > 0) {
		size_t room = checked("reserve", shunt_reserve(peer, (size_t)got, out));
		for (size_t at = 0; at < room; at++) {
			const char *from = at < in[0].iov_len ? (char *)in[0].iov_base + at
							      : (char *)in[1].iov_base + (at - in[0].iov_len);
			char *to = at < out[0].iov_len ? (char *)out[0].iov_base + at
						       : (char *)out[1].iov_base + (at - out[0].iov_len);
			*to = *from;
		}
		checked("commit", shunt_commit(peer, room));
		checked("consume", shunt_consume(peer, room));
	}
	if (got < 0)
		fprintf(stderr, "borrow: %s\n", strerror((int)-got));
	shunt_close(peer);
}

static char pattern(size_t at)
{
	return (char)(at * 2654435761u >> 13);
}

static void ask(shunt_handle server, size_t bytes)
{
	size_t sent = 0, received = 0;

	while (received < bytes) {
		struct iovec room[2], back[2];
		/* Not more than half a window on the way, so that neither side waits for the other. */
		if (sent < bytes && sent - received < 16384) {
			size_t len = bytes - sent < 16384 ? bytes - sent : 16384;
			len = checked("reserve", shunt_reserve(server, len, room));
			for (size_t part = 0, at = 0; part < 2; part++)
				for (size_t i = 0; i < room[part].iov_len; i++, at++)
					((char *)room[part].iov_base)[i] = pattern(sent + at);
			checked("commit", shunt_commit(server, len));
			sent += len;
		}
		size_t got = checked("borrow", shunt_borrow(server, bytes - received, back));
		if (got == 0)
			checked("the server ended early", -1);
		for (size_t part = 0, at = 0; part < 2; part++)
			for (size_t i = 0; i < back[part].iov_len; i++, at++)
				if (((char *)back[part].iov_base)[i] != pattern(received + at))
					checked("other bytes came back", -1);
		checked("consume", shunt_consume(server, got));
		received += got;
	}
	checked("shutdown", shunt_shutdown(server, SHUT_WR));
	checked("close", shunt_close(server));
	printf("%zu bytes came back\n", received);
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = {.sin_family = AF_INET};

	if (argc < 4 || inet_pton(AF_INET, argv[2], &name.sin_addr) != 1) {
		fprintf(stderr, "usage: echo server|client ADDRESS PORT [BYTES]\n");
		return 2;
	}
	name.sin_port = htons((uint16_t)atoi(argv[3]));
	shunt_handle engine = checked("attach", shunt_attach(NULL));
	if (strcmp(argv[1], "client") == 0) {
		shunt_handle server = checked(
			"connect", shunt_connect(engine, (struct sockaddr *)&name, sizeof name, -1));
		ask(server, argc > 4 ? strtoul(argv[4], NULL, 10) : 1000);
		return 0;
	}
	shunt_handle listener =
		checked("listen", shunt_listen(engine, (struct sockaddr *)&name, sizeof name, 64));
	printf("listening\n");
	fflush(stdout);
	for (;;)
		serve(checked("accept", shunt_accept(listener, NULL, NULL)));
}
