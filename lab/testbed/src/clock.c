/* The wall clock of a server is the one in the file that $LEASEHOLD_CLOCK names; clock.rs writes that file.

   Loaded into the server with LD_PRELOAD. The clock functions only use system calls: a server's own
   allocator would recurse on malloc and dlsym. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting { int64_t runs, nanos; };

/* The writer fills the setting that is not current, and then makes it current with one byte: no reader sees half of one. */
static const volatile struct { uint8_t current; struct setting settings[2]; } *file;

__attribute__((constructor)) static void map_file(void) {
  const char *path = getenv("LEASEHOLD_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *mapped = mmap(0, sizeof *file, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) abort();
  close(fd);
  file = mapped;
}

int clock_gettime(clockid_t id, struct timespec *time) {
  if (syscall(SYS_clock_gettime, id, time)) return -1;
  if (file && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    uint8_t current = __atomic_load_n(&file->current, __ATOMIC_ACQUIRE);
    int64_t now = time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
    int64_t nanos = file->settings[current].nanos + (file->settings[current].runs ? now : 0);
    time->tv_sec = nanos / 1000000000;
    time->tv_nsec = nanos % 1000000000;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}

/* Hides the description of the processor from the server. If the processor has a constant counter, Valkey 9.1 uses the counter for up to one millisecond
   before it reads the wall clock again. */
static FILE *open_file(const char *path, const char *mode) {
  int flags = *mode == 'r' ? 0 : O_CREAT | (*mode == 'a' ? O_APPEND : O_TRUNC);
  flags |= strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
  flags |= (strchr(mode, 'e') ? O_CLOEXEC : 0) | (strchr(mode, 'x') ? O_EXCL : 0);
  if (!strcmp(path, "/proc/cpuinfo")) {
    errno = ENOENT;
    return 0;
  }
  int fd = open(path, flags, 0666);
  FILE *opened = fd < 0 ? 0 : fdopen(fd, mode);
  if (fd >= 0 && !opened) close(fd);
  return opened;
}

FILE *fopen(const char *path, const char *mode) { return open_file(path, mode); }

FILE *fopen64(const char *path, const char *mode) { return open_file(path, mode); }
