/* Belongs to root, with the bit by which it runs as root. Exits with the number of the error if it may not read what is root's. */
#include <errno.h>
#include <fcntl.h>

int main(void) {
    return open("/etc/shadow", O_RDONLY) >= 0 ? 0 : errno;
}
