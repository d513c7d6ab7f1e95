/* Work shared by threads: chunks of parts; a thread takes the next one when it is free.
 *
 * If torch computes with OpenMP, its own team of threads takes them (_team.h). In a forked process,
 * and without OpenMP, threads are started for each call.
 */

#include "_team.h"

enum { MOST_TENSORS = 4, MOST_THREADS = 256, CHUNKS_OF_A_THREAD = 16, CHUNKS_WORTH_A_START = 4 };

/* The last user frees it, because a thread may start only after all work is done. */
typedef struct {
    Work work[MOST_TENSORS];
    int64_t parts[MOST_TENSORS], first_chunk[MOST_TENSORS + 1]; /* parts in a chunk of each tensor */
    int count;
    atomic_llong next, done;
    atomic_int users;
} Job;

static void take_chunks(void *shared) {
    Job *job = shared;
    int64_t all = job->first_chunk[job->count], chunk;
    while ((chunk = atomic_fetch_add(&job->next, 1)) < all) {
        int i = 0;
        while (chunk >= job->first_chunk[i + 1]) i++;
        const Work *w = &job->work[i];
        int64_t first = (chunk - job->first_chunk[i]) * job->parts[i], last = first + job->parts[i];
        int64_t end = parts(w);
        rotate_parts(w, first, last < end ? last : end);
        atomic_fetch_add(&job->done, 1);
    }
}

static void leave(Job *job) {
    if (atomic_fetch_sub(&job->users, 1) == 1) free(job);
}

#ifdef HAS_THREADS
static void *help(void *job) {
    take_chunks(job);
    leave(job);
    return NULL;
}

/* Starts up to n threads; if none can be started, the caller does all the work. */
static void start_helpers(Job *job, int64_t n) {
    pthread_attr_t detached;
    pthread_t thread;
    if (pthread_attr_init(&detached)) return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (; n > 0; n--) {
        atomic_fetch_add(&job->users, 1);
        if (pthread_create(&thread, &detached, help, job)) {
            atomic_fetch_sub(&job->users, 1);
            break;
        }
    }
    pthread_attr_destroy(&detached);
}

static void take_all_chunks(Job *job, int64_t threads) {
    if (team) {
        team(take_chunks, job, (unsigned)threads, 0);
        return;
    }
    start_helpers(job, threads - 1);
    take_chunks(job);
    /* Waits for the chunks, not for the threads, which may not run yet. */
    while (atomic_load(&job->done) < job->first_chunk[job->count]) sched_yield();
}
#else
static void take_all_chunks(Job *job, int64_t threads) { take_chunks(job); }
#endif

/* Rotates by at most this many threads. Each takes about `chunk` bytes of x at a time; more of large
 * tensors, because long runs are fetched best, but not so many that threads wait for the last one. */
static void rotate_all(const Work *work, int count, int64_t threads, int64_t chunk) {
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += work[i].batch * work[i].heads * work[i].length * work[i].dim * SIZE[work[i].dtype];
    int64_t worth = bytes / chunk;
#ifdef HAS_THREADS
    if (!team) worth /= CHUNKS_WORTH_A_START;
#endif
    if (threads > worth) threads = worth;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > 1 && chunk < bytes / (threads * CHUNKS_OF_A_THREAD))
        chunk = bytes / (threads * CHUNKS_OF_A_THREAD);
    Job *job = threads > 1 ? malloc(sizeof(Job)) : NULL;
    if (!job) {
        for (int i = 0; i < count; i++)
            rotate_parts(&work[i], 0, parts(&work[i]));
        return;
    }
    job->count = count;
    job->first_chunk[0] = 0;
    for (int i = 0; i < count; i++) {
        const Work *w = &work[i];
        int64_t part = heads_together(w) * w->dim * SIZE[w->dtype];
        job->work[i] = *w;
        job->parts[i] = part < chunk ? chunk / part : 1;
        job->first_chunk[i + 1] = job->first_chunk[i] + (parts(w) + job->parts[i] - 1) / job->parts[i];
    }
    atomic_init(&job->next, 0);
    atomic_init(&job->done, 0);
    atomic_init(&job->users, 1);
    take_all_chunks(job, threads);
    leave(job);
}
