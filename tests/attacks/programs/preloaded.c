/* Notes for each program into which it is loaded whether the program may still gain privileges (0), or is sealed (1). */
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    char sealed = (char)('0' + prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    int notes = open(NOTES, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (notes >= 0) {
        if (write(notes, &sealed, 1) != 1) _exit(1);
        close(notes);
    }
}
