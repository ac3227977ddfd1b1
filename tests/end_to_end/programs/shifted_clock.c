/* Preloaded, it makes a program's clock wrong by SHIFT seconds, or by as many as stand in the file SHIFT_FILE at that moment. Clocks that
   only measure time go on as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *file = getenv("SHIFT_FILE");
    if (file) {
        char text[32] = "";
        int opened = open(file, O_RDONLY | O_CLOEXEC);
        if (opened >= 0) {
            if (read(opened, text, sizeof text - 1) < 0)
                text[0] = '\0';
            close(opened);
        }
        return atol(text);
    }
    const char *seconds = getenv("SHIFT");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && clock == CLOCK_REALTIME)
        at->tv_sec += shift();
    return failed;
}
