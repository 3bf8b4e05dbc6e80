/* Sockets of a program that is executed with an environment which says nothing of where it came from: emptied, or with an LD_PRELOAD of its
 * own. It uses the socket, and sees the environment that it was given. */
#define PARITY_ROLE
#include "parity.h"
#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

/* Where an executed program finds its socket: above every number that the program gets by itself. */
enum { PLACE = 90 };
/* More variables than most arrays have room for. */
enum { MANY = 3000 };

static char program[4096];
static char command[4200];
static char *words[] = {"parity", "as", "echo", NULL};
static char *nothing[] = {NULL};
static char *own[] = {"FIRST=1", "LD_PRELOAD=", "SECOND=2", NULL};
static char *many[MANY + 1];

static int ends_well(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What the environment says that the caller has not said: 0 is as it should be. */
static int strange(void) {
    int strange = 0;
    for (char **entry = environ; *entry; entry++)
        strange |= !strncmp(*entry, "SHUNT_", 6) || (!strncmp(*entry, "LD_PRELOAD=", 11) && (*entry)[11]);
    return strange;
}

static int role(const char *name) {
    char text[256];
    long count;
    int wrong = strange() ? 64 : 0;
    if (!strcmp(name, "count"))
        return wrong | (int)(environ[0] != NULL);
    if (!strcmp(name, "accept")) {
        int fd = accept(PLACE, NULL, NULL);
        return wrong | (fd < 0 ? 1 : write(fd, "child", 5) == 5 ? 0 : 2);
    }
    while ((count = read(PLACE, text, sizeof text)) > 0)
        if (write(PLACE, text, (size_t)count) != count)
            return wrong | 2;
    return wrong | (count < 0 ? 1 : 0);
}

static void by_execve(void) { execve(program, words, nothing); }
static void by_null(void) { execve(program, words, NULL); }
static void by_own(void) { execve(program, words, own); }
static void by_many(void) { execve(program, words, many); }
static void by_execvpe(void) { execvpe(program, words, nothing); }
static void by_execle(void) { execle(program, words[0], words[1], words[2], NULL, nothing); }
static void by_fexecve(void) { fexecve(open(program, O_RDONLY | O_CLOEXEC), words, nothing); }
static void by_execveat(void) { execveat(AT_FDCWD, program, words, nothing, 0); }

static void by_number(void) { syscall(SYS_execve, program, words, nothing); }
static void by_number_at(void) { syscall(SYS_execveat, AT_FDCWD, program, words, nothing, 0); }

static void by_execv(void) {
    clearenv();
    execv(program, words);
}

static void by_execvp(void) {
    environ = nothing;
    execvp(program, words);
}

static void by_execl(void) {
    clearenv();
    execl(program, words[0], words[1], words[2], NULL);
}

/* Through a shell, and a program that empties it by itself. */
static void by_env(void) {
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
}

static void by_system(void) {
    clearenv();
    int status = system(command + strlen("exec env -i "));
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

static void by_popen(void) {
    clearenv();
    FILE *pipe = popen(command + strlen("exec env -i "), "r");
    int status = pipe ? pclose(pipe) : -1;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

static void spawned(int searches) {
    pid_t child;
    int error = (searches ? posix_spawnp : posix_spawn)(&child, program, NULL, NULL, words, nothing);
    _exit(error ? 97 : ends_well(child));
}

static void by_spawn(void) { spawned(0); }
static void by_spawnp(void) { spawned(1); }

static const struct {
    const char *name;
    void (*execute)(void);
} WAYS[] = {
    {"execve", by_execve},   {"null", by_null},         {"own", by_own},       {"many", by_many},     {"execvpe", by_execvpe},
    {"execle", by_execle},   {"fexecve", by_fexecve},   {"execv", by_execv},   {"execvp", by_execvp}, {"execl", by_execl},
    {"execveat", by_execveat}, {"env", by_env},         {"system", by_system}, {"popen", by_popen},   {"spawn", by_spawn},
    {"spawnp", by_spawnp},   {"number", by_number},     {"number at", by_number_at},
};
enum { COUNT = sizeof WAYS / sizeof *WAYS };

static void prepare(void) {
    long len = readlink("/proc/self/exe", program, sizeof program - 1);
    program[len < 0 ? 0 : len] = 0;
    snprintf(command, sizeof command, "exec env -i %s as echo", program);
    for (int number = 0; number < MANY; number++) {
        many[number] = malloc(32);
        snprintf(many[number], 32, "VARIABLE_%d=%d", number, number);
    }
}

/* vfork, not fork: the child's memory, and what it makes there, is its parent's. */
static void lent(int listener) {
    int fd = accepted(listener);
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, PLACE);
        execve(program, words, nothing);
        _exit(99);
    }
    close(fd);
    say("vfork: %d", ends_well(child));
}

static void listened(int listener) {
    int control = accepted(listener);
    char *accepting[] = {"parity", "as", "accept", NULL};
    pid_t child = fork();
    if (child == 0) {
        dup2(listener, PLACE);
        execve(program, accepting, nothing);
        _exit(99);
    }
    step(control);
    say("accept: %d", ends_well(child));
    close(control);
}

static void counted(void) {
    char *counting[] = {"parity", "as", "count", NULL};
    pid_t child = fork();
    if (child == 0) {
        execve(program, counting, nothing);
        _exit(99);
    }
    say("variables: %d", ends_well(child));
}

static void server(int listener) {
    prepare();
    fflush(NULL);
    counted();
    for (int way = 0; way < COUNT; way++) {
        int fd = accepted(listener);
        pid_t child = fork();
        if (child == 0) {
            dup2(fd, PLACE);
            WAYS[way].execute();
            _exit(99);
        }
        close(fd);
        say("%s: %d", WAYS[way].name, ends_well(child));
    }
    lent(listener);
    listened(listener);
}

static void client(address_t peer) {
    for (int way = 0; way < COUNT; way++)
        echoed(WAYS[way].name, peer);
    echoed("vfork", peer);
    char text[16] = {0};
    int control = connected(peer);
    await(control);
    int fd = connected(peer);
    result("by the child", recv(fd, text, sizeof text, MSG_WAITALL));
    close(fd);
    close(control);
}
