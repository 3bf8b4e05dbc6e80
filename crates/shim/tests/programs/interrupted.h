/* Signals that come often, to the thread that asks for them, and whose handler does nothing and has calls go on; after parity.h. */
#ifndef INTERRUPTED_H
#define INTERRUPTED_H

static void ignore(int signal) { (void)signal; }

static timer_t start_signals(void) {
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event._sigev_un._tid = gettid();
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec time = {{0, 300000}, {0, 300000}};
    timer_settime(timer, 0, &time, NULL);
    return timer;
}
#endif
