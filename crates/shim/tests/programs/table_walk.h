/* The walk of table_tcp and table_udp over their STATES: every call and every option, their own too, in each. */
static void call_in(int state, const struct call *call) {
    char line[64];
    if (STATES[state].kind & call->except)
        return;
    int fd = STATES[state].make();
    snprintf(line, sizeof line, "%s, %s", STATES[state].name, call->name);
    result(line, call->run(fd));
    close(fd);
    if (extra >= 0)
        close(extra);
    extra = -1;
}

static void ask_and_tell(int fd, int state, const struct option *one) {
    int value = 0, on = 1;
    socklen_t len = sizeof value;
    int done = getsockopt(fd, one->level, one->option, &value, &len);
    say("%s, get %s: %s, %d bytes, %d", STATES[state].name, one->name, done < 0 ? error_name(errno) : "ok", (int)len,
        one->value_told ? value : 0);
    done = setsockopt(fd, one->level, one->option, &on, sizeof on);
    say("%s, set %s: %s", STATES[state].name, one->name, done < 0 ? error_name(errno) : "ok");
    done = setsockopt(fd, one->level, one->option, &on, 1);
    say("%s, set %s, one byte: %s", STATES[state].name, one->name, done < 0 ? error_name(errno) : "ok");
}

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* Every call and every option, those of the program too, in every state. */
static void walk(void) {
    signal(SIGPIPE, SIG_IGN);
    for (int state = 0; state < (int)COUNT(STATES); state++) {
        for (size_t n = 0; n < COUNT(CALLS); n++)
            call_in(state, &CALLS[n]);
        for (size_t n = 0; n < COUNT(OWN_CALLS); n++)
            call_in(state, &OWN_CALLS[n]);
        int fd = STATES[state].make();
        for (size_t n = 0; n < COUNT(OPTIONS); n++)
            ask_and_tell(fd, state, &OPTIONS[n]);
        for (size_t n = 0; n < COUNT(OWN_OPTIONS); n++)
            ask_and_tell(fd, state, &OWN_OPTIONS[n]);
        close(fd);
        if (extra >= 0)
            close(extra);
        extra = -1;
    }
}
