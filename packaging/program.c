/* The program `sealbus` of a wheel. The platform is in the file of the Python package, which a wheel thus has once: this program finds
 * the file beside itself, loads it, and calls its command. No interpreter runs. packaging/wheel builds it.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Where installers put packages, as seen from the folder of programs: environments, the system's and the user's own folders, and
 * `pip install --target`. */
static const char *const PLACES[] = {
    "../lib/python3*/site-packages",
    "../lib64/python3*/site-packages",
    "../lib/python3*/dist-packages",
    "..",
};

/* A program that writes to a closed pipe gets an error, as Rust programs do, and whatever it opens is not taken for its output. */
static void prepare(void) {
    signal(SIGPIPE, SIG_IGN);
    for (int descriptor = 0; descriptor <= 2; descriptor++)
        if (fcntl(descriptor, F_GETFD) == -1)
            (void)!open("/dev/null", O_RDWR);
}

/* Folders may have names with characters that mean something in a pattern. */
static void quote(char *to, const char *name) {
    for (; *name; name++) {
        if (strchr("*?[\\", *name))
            *to++ = '\\';
        *to++ = *name;
    }
    *to = '\0';
}

int main(void) {
    char program[PATH_MAX], quoted[2 * PATH_MAX], pattern[2 * PATH_MAX + 128], problem[512] = "it is not there";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) {
        perror("sealbus: /proc/self/exe");
        return 1;
    }
    program[length] = '\0';
    prepare();
    const char *folder = dirname(program);
    quote(quoted, folder);
    for (size_t place = 0; place < sizeof PLACES / sizeof *PLACES; place++) {
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/%s/sealbus/_sealbus.abi3.so", quoted, PLACES[place]);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t index = 0; index < found.gl_pathc; index++) {
            void *package = dlopen(found.gl_pathv[index], RTLD_NOW | RTLD_LOCAL);
            int (*command)(void) = package ? (int (*)(void))dlsym(package, "sealbus_command") : NULL;
            if (command)
                return command();
            snprintf(problem, sizeof problem, "%s", dlerror());
        }
        globfree(&found);
    }
    fprintf(stderr,
            "error: sealbus cannot use the Python package beside %s: %s\n"
            "help: install the wheel again, with `pip install --force-reinstall`\n",
            folder, problem);
    return 1;
}
