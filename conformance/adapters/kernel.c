/* Level 3 by ropewalk's own loops in C, the fastest set of the processor, without Python. */
#include "../port.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FLOAT32, FLOAT64, BFLOAT16, FLOAT16, DTYPES };
#include "../../src/ropewalk/rotary/kernels/_instructions.h"
#include "../../src/ropewalk/rotary/kernels/_rotate_work.h"
#include "../../src/ropewalk/rotary/kernels/_rotate_sets.h"

int port_frequencies(const vector *v, double *inverse_frequencies, double *attention_factor) {
    return 0;
}

int port_tables(const vector *v, double *cos, double *sin) { return 0; }

static void turn(const vector *v, const double *x, double *y) {
    int width = v->head_dim, size = v->tokens * width, rows = v->tokens * v->pairs;
    float *in = calloc(size, 4), *out = calloc(size, 4), *tables = calloc(2 * rows, 4);
    for (int i = 0; i < size; i++) in[i] = out[i] = (float)x[i];
    for (int i = 0; i < rows; i++) tables[i] = (float)v->cos[i], tables[rows + i] = (float)v->sin[i];
    int start = v->start, first = 0;
    for (int block = 0; block < v->block_count; block++) {
        Work work = {.pairs = v->blocks[block] / 2,
                     .read_interleaved = strcmp(v->pairing, "half") != 0,
                     .write_interleaved = strcmp(v->write_pairing, "half") != 0};
        Rows of = {(char *)(in + start), (char *)(out + start), (char *)(tables + first),
                   (char *)(tables + rows + first), v->tokens, width, width, v->pairs, 1, 0, 0};
        SETS[instructions()].rotate[FLOAT32](&work, &of);
        start += v->blocks[block], first += v->blocks[block] / 2;
    }
    for (int i = 0; i < size; i++) y[i] = out[i];
    free(in), free(out), free(tables);
}

int port_rotate(const vector *v, double *q, double *k) {
    turn(v, v->q, q);
    if (k) turn(v, v->k, k);
    return 1;
}
