/* Waiting until another thread sleeps in a call; after parity.h. No time is long enough for that on a busy machine. */
#ifndef ASLEEP_H
#define ASLEEP_H
#include <sys/syscall.h>

/* Of the thread that is waited for; 0: it is not as far. */
static volatile int number;

/* This thread is, from now on. */
static void about_to_sleep(void) { number = (int)syscall(SYS_gettid); }

/* Until the thread sleeps, as the kernel says, or has ended; it may have slept at something else, which is as good. Another may be
   waited for then. */
static void await_sleep(void) {
    char name[64], state = 0;
    double start = now();
    for (int seen = 0; seen < 5 && now() - start < 30;) {
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", number);
        FILE *file = number ? fopen(name, "r") : NULL;
        if (number && !file)
            break;
        if (file) {
            if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
                state = 0;
            fclose(file);
        }
        seen = state == 'S' ? seen + 1 : 0;
        pause_ms(5);
    }
    /* It may have slept at something before its call. */
    pause_ms(100);
    number = 0;
}
#endif
