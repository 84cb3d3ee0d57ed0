/* Loaded into a Redis (LD_PRELOAD): copies $POWER_DATA to $POWER_MOMENTS before each rename and unlink, while the
   latter folder is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void keep(void) {
    char *data = getenv("POWER_DATA"), *moments = getenv("POWER_MOMENTS"), command[8192];
    struct timespec now;
    if (!data || !moments || access(moments, F_OK)) return;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(command, sizeof command, "LD_PRELOAD= cp -r '%s' '%s/%ld.%09ld'", data, moments, now.tv_sec, now.tv_nsec);
    if (system(command)) _exit(1);
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    keep();
    return real(from, to);
}

int unlink(const char *path) {
    int (*real)(const char *) = dlsym(RTLD_NEXT, "unlink");
    keep();
    return real(path);
}
