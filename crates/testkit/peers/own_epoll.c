// A program whose sockets are libc's and whose epoll is its own, past libc, as in Rust's crate `polling` and all that is built on it.
//
//	own_epoll serve ADDRESS PORT    gives back what comes on each connection, until it ends
//	own_epoll ask ADDRESS PORT      asks over eight connections at once, prints what comes back
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONNECTIONS 8
#define PATIENCE_MS 10000

static inline __attribute__((always_inline)) long enter(long number, long a, long b, long c, long d)
{
	long result;
	register long fourth asm("r10") = d;
	register long fifth asm("r8") = 0;
	register long sixth asm("r9") = 8;
	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
		     : "rcx", "r11", "memory");
	return result;
}

static void watch(int set, long change, int fd, unsigned events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};
	if (enter(SYS_epoll_ctl, set, change, fd, (long)&event) != 0)
		printf("epoll_ctl fails\n");
}

static int serve(struct sockaddr_in name)
{
	int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&name, sizeof name) || listen(listener, CONNECTIONS))
		return 1;
	int set = (int)enter(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0);
	watch(set, EPOLL_CTL_ADD, listener, EPOLLIN);
	for (;;) {
		struct epoll_event event;
		if (enter(SYS_epoll_pwait, set, (long)&event, 1, -1) != 1)
			return 1;
		char text[64];
		if (event.data.fd == listener) {
			int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
			if (fd >= 0)
				watch(set, EPOLL_CTL_ADD, fd, EPOLLIN);
			continue;
		}
		ssize_t got = recv(event.data.fd, text, sizeof text, 0);
		if (got > 0)
			send(event.data.fd, text, (size_t)got, 0);
		else
			close(event.data.fd);
	}
}

static int ask(struct sockaddr_in name)
{
	int set = (int)enter(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0), asked[1024] = {0}, left = CONNECTIONS;
	for (int n = 0; n < CONNECTIONS; n++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (connect(fd, (struct sockaddr *)&name, sizeof name) && errno != EINPROGRESS)
			return 1;
		watch(set, EPOLL_CTL_ADD, fd, EPOLLOUT);
	}
	while (left > 0) {
		struct epoll_event event;
		if (enter(SYS_epoll_pwait, set, (long)&event, 1, PATIENCE_MS) != 1) {
			printf("nothing is ready\n");
			return 1;
		}
		int fd = event.data.fd, error = 0;
		char text[64];
		socklen_t size = sizeof error;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error != 0) {
			printf("%s\n", strerror(error));
			return 1;
		}
		if (!asked[fd]) {
			asked[fd] = (int)send(fd, "who is ready?\n", 14, 0);
			watch(set, EPOLL_CTL_MOD, fd, EPOLLIN);
			continue;
		}
		ssize_t got = recv(fd, text, sizeof text, 0);
		printf("%.*s", (int)got, text);
		close(fd);
		left--;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[3]))};
	inet_pton(AF_INET, argv[2], &name.sin_addr);
	return strcmp(argv[1], "serve") ? ask(name) : serve(name);
}
