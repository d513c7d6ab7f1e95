/* The threads with which torch computes, if it computes with OpenMP.
 *
 * They are awake when a call is among others of torch, and would otherwise compete with our threads.
 * A forked process has no such team, and hangs if it uses one.
 */

#if !defined(_WIN32)
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#define HAS_THREADS 1
#endif

#ifdef HAS_THREADS
/* GNU OpenMP's entry for a parallel region, which LLVM's and Intel's have as well. NULL if there is
 * no team. */
static void (*team)(void (*function)(void *), void *argument, unsigned threads, unsigned flags);

static void forget_team(void) { team = NULL; }

static void find_team(void) {
    *(void **)&team = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    if (team && pthread_atfork(NULL, NULL, forget_team)) team = NULL;
}
#else
static void find_team(void) {}
#endif
