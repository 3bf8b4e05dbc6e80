/*
 * What a fork leaves of the native interface: parent and child hold the same sockets, a set is its maker's, and what one
 * of them closes the other still has.
 *
 *   fork ADDRESS        of the engine that SHUNT_ENGINE names
 */
#include <arpa/inet.h>
#include <errno.h>
#include <shunt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long long checked(const char *what, long long result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
		exit(1);
	}
	return result;
}

static void require(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "not so: %s\n", what);
		exit(1);
	}
}

static void hears(shunt_handle socket, const char *text)
{
	char got[16];
	size_t len = strlen(text), done = 0;

	while (done < len) {
		long long part = checked(text, shunt_receive(socket, got + done, len - done));
		require(part > 0, "no end before the text");
		done += (size_t)part;
	}
	require(!memcmp(got, text, len), text);
}

static void says(shunt_handle socket, const char *text)
{
	require(checked(text, shunt_send(socket, text, strlen(text))) == (long long)strlen(text), "all is sent");
}

/* Goes on with what it has from its parent, makes what is its own, and closes all of it. */
static void child(shunt_handle engine, shunt_handle listener, shunt_handle far, shunt_handle set,
		  struct sockaddr_in *name)
{
	struct shunt_event event;

	hears(far, "to child");
	says(far, "from child");
	shunt_handle own = checked("connect", shunt_connect(engine, (struct sockaddr *)name, sizeof *name, -1));
	says(own, "own");
	hears(own, "answer");
	require(shunt_poller_wait(set, &event, 1, 0) == -EBADF, "the set is the parent's");
	checked("close", shunt_close(own));
	checked("close", shunt_close(far));
	checked("close", shunt_close(listener));
	require(shunt_close(far) == -EBADF, "closed once");
}

int main(int argc, char **argv)
{
	struct sockaddr_in name = {.sin_family = AF_INET};
	socklen_t len = sizeof name;
	struct shunt_event event;
	int status;

	if (argc != 2 || inet_pton(AF_INET, argv[1], &name.sin_addr) != 1)
		return 2;
	shunt_handle engine = checked("attach", shunt_attach(NULL));
	shunt_handle listener =
		checked("listen", shunt_listen(engine, (struct sockaddr *)&name, sizeof name, 8));
	checked("name", shunt_local_name(listener, (struct sockaddr *)&name, &len));
	shunt_handle near = checked("connect", shunt_connect(engine, (struct sockaddr *)&name, sizeof name, -1));
	shunt_handle far = checked("accept", shunt_accept(listener, NULL, NULL));
	shunt_handle set = checked("poller", shunt_poller(engine));
	checked("add", shunt_poller_add(set, near, 7, SHUNT_IN));

	pid_t process = fork();
	if (process == 0) {
		child(engine, listener, far, set, &name);
		_exit(0);
	}
	says(near, "to child");
	hears(near, "from child");
	/* The child's own connection comes to the listener that both have. */
	shunt_handle other = checked("accept", shunt_accept(listener, NULL, NULL));
	hears(other, "own");
	says(other, "answer");
	char byte;
	require(checked("end", shunt_receive(other, &byte, 1)) == 0, "the child has closed what was its own");
	require(waitpid(process, &status, 0) == process && status == 0, "the child ended well");

	/* What the child has closed is the parent's still. */
	says(far, "still");
	require(checked("wait", shunt_poller_wait(set, &event, 1, 30000)) == 1 && event.token == 7, "the set tells");
	hears(near, "still");
	checked("close", shunt_close(far));
	require(checked("end", shunt_receive(near, &byte, 1)) == 0, "the last holder's close is the end");
	checked("accepts", shunt_connect(engine, (struct sockaddr *)&name, sizeof name, -1));
	checked("accept", shunt_accept(listener, NULL, NULL));
	puts("as it should be");
	return 0;
}
