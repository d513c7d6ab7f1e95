/* What the loops of _rotate.c rotate. */

/* One tensor to rotate. Strides are in elements; those of missing axes are 0. */
typedef struct {
    const char *x;
    char *out; /* may be x */
    const char *cos, *sin;
    int64_t batch, heads, length, dim;
    int64_t x_stride[3], out_stride[3], table_stride[3]; /* of batch, heads, length */
    int64_t start, pairs;
    int dtype, read_interleaved, write_interleaved, adjoint;
} Work;

/* Consecutive rows along an axis of each tensor, of one head or of two with the same tables. */
typedef struct {
    const char *x;
    char *out;
    const char *cos, *sin;
    int64_t count, x_stride, out_stride, table_stride; /* in elements */
    int64_t heads, x_head, out_head;                   /* 1 or 2, and their strides */
} Rows;

typedef void (*Rotate)(const Work *, const Rows *);

/* Prefetches memory this many bytes after a row: prefetching by the processor ends at a page boundary.
 * Beyond the tensor it has no effect. */
enum { AHEAD = 4096, LINE = 64 };

static inline void fetch_ahead(const void *row, int64_t bytes) {
#ifdef __GNUC__
    for (int64_t i = AHEAD; i < AHEAD + bytes; i += LINE)
        __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)i));
#endif
}
