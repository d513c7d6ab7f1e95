/* Levels 2 and 3 in float64, from the frequencies of level 1. */
#include "../port.h"

#include <math.h>
#include <string.h>

int port_frequencies(const vector *v, double *inverse_frequencies, double *attention_factor) {
    return 0;
}

int port_tables(const vector *v, double *c, double *s) {
    for (int token = 0; token < v->tokens; token++)
        for (int i = 0; i < v->pairs; i++) {
            double at = v->positions[v->axis_of_pair[i]][token];
            c[token * v->pairs + i] = v->attention_factor * cos(at * v->inverse_frequencies[i]);
            s[token * v->pairs + i] = v->attention_factor * sin(at * v->inverse_frequencies[i]);
        }
    return 1;
}

static void pair(const vector *v, const char *pairing, int i, int *a, int *b) {
    int at = v->start, block = 0;
    for (; i >= v->blocks[block] / 2; i -= v->blocks[block++] / 2) at += v->blocks[block];
    *a = at + (strcmp(pairing, "half") ? 2 * i : i);
    *b = at + (strcmp(pairing, "half") ? 2 * i + 1 : i + v->blocks[block] / 2);
}

static void turn(const vector *v, const double *x, double *y) {
    memcpy(y, x, sizeof(double) * v->tokens * v->head_dim);
    for (int token = 0; token < v->tokens; token++, x += v->head_dim, y += v->head_dim)
        for (int i = 0; i < v->pairs; i++) {
            double c = v->cos[token * v->pairs + i], s = v->sin[token * v->pairs + i];
            int a, b, to_a, to_b;
            pair(v, v->pairing, i, &a, &b), pair(v, v->write_pairing, i, &to_a, &to_b);
            y[to_a] = x[a] * c - x[b] * s, y[to_b] = x[b] * c + x[a] * s;
        }
}

int port_rotate(const vector *v, double *q, double *k) {
    turn(v, v->q, q);
    if (k) turn(v, v->k, k);
    return 1;
}
