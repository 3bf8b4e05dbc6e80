/*
 * Echoes messages of 64 bytes on the socket library that is preloaded, for whoever counts the instructions of `counted_echo`, or of
 * `counted_datagram` over UDP: one message at a time, from a client on the kernel of another host, which is this thread too, by system
 * calls of its own. So each message is there before it is asked for, and nobody else runs meanwhile.
 *
 * Arguments: the client's network namespace, the address to listen on, how many echoes, tcp or udp.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 64, PORT = 9100, EACH = 16 };

/* Past every library. */
static long kernel(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long echo(int fd)
{
	char bytes[BYTES];
	long got = recv(fd, bytes, sizeof bytes, 0);
	return got == BYTES ? send(fd, bytes, got, 0) : -1;
}

/* What is counted has a name of its own: to write a count down takes milliseconds, after which the next echo is another. */
__attribute__((noinline)) long counted_echo(int fd)
{
	return echo(fd);
}

static __attribute__((noinline)) long other_echo(int fd)
{
	return echo(fd);
}

static inline __attribute__((always_inline)) long datagram(int fd)
{
	char bytes[BYTES];
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	long got = recvfrom(fd, bytes, sizeof bytes, 0, (void *)&peer, &len);
	return got == BYTES ? sendto(fd, bytes, got, 0, (void *)&peer, len) : -1;
}

__attribute__((noinline)) long counted_datagram(int fd)
{
	return datagram(fd);
}

static __attribute__((noinline)) long other_datagram(int fd)
{
	return datagram(fd);
}

static int fails(const char *what)
{
	perror(what);
	return 1;
}

/* A socket of the kernel's in that namespace. */
static int client_in(const char *path, int kind)
{
	int own = open("/proc/self/ns/net", O_RDONLY), other = open(path, O_RDONLY);
	if (setns(other, CLONE_NEWNET))
		return -1;
	int client = (int)kernel(SYS_socket, AF_INET, kind | SOCK_NONBLOCK, 0);
	return setns(own, CLONE_NEWNET) ? -1 : client;
}

int main(int count, char **words)
{
	if (count != 5)
		return 2;
	int kind = strcmp(words[4], "udp") ? SOCK_STREAM : SOCK_DGRAM, is_udp = kind == SOCK_DGRAM;
	int client = client_in(words[1], kind);
	if (client < 0)
		return fails("setns");
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	inet_pton(AF_INET, words[2], &address.sin_addr);
	int listener = socket(AF_INET, kind, 0);
	if (bind(listener, (void *)&address, sizeof address) || (!is_udp && listen(listener, 8)))
		return fails("listen");
	kernel(SYS_connect, client, (long)&address, sizeof address);
	int served = is_udp ? listener : accept(listener, NULL, NULL);
	if (served < 0)
		return fails("accept");
	kernel(SYS_fcntl, client, F_SETFL, 0);
	char bytes[BYTES] = { 0 };
	long (*counted)(int) = is_udp ? counted_datagram : counted_echo;
	long (*other)(int) = is_udp ? other_datagram : other_echo;
	for (int done = 0; done < atoi(words[3]); done++) {
		if (kernel(SYS_write, client, (long)bytes, BYTES) != BYTES)
			return fails("write");
		if ((done % EACH ? other : counted)(served) != BYTES)
			return fails("echo");
		if (kernel(SYS_read, client, (long)bytes, BYTES) != BYTES)
			return fails("read");
	}
	puts("done");
	return 0;
}
