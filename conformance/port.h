/* What a port in C answers; see README.md. All three functions must be defined. Each returns 1 if it
 * answers, and 0 for what it does not offer: a rule, several axes, …. It reads v and writes the rest. */
#ifndef PORT_H
#define PORT_H

typedef struct {
    char area[32], name[64], dtype[16], pairing[16], write_pairing[16];
    int head_dim, rotary_dim, start, length; /* length: 0 if no rule depends on it */
    int reverse;                             /* 1: position m rotates by -m·f */
    double theta;
    int rule_count; /* the scaling rule: pairs of a key and a value; of a list, one for each entry */
    char rule[160][2][48];
    int block_count, blocks[16]; /* pairs are made within each block; mostly one of rotary_dim */
    int pairs, *axis_of_pair;
    int axes, tokens;
    double *positions[8]; /* of each axis, (tokens) */
    double *q, *k;        /* (tokens, head_dim); k is NULL if there is none */
    /* The right results, which lower levels give to higher ones. */
    double *inverse_frequencies, attention_factor, *cos, *sin; /* (pairs), 1, (tokens, pairs) */
} vector;

int port_frequencies(const vector *v, double *inverse_frequencies, double *attention_factor);
int port_tables(const vector *v, double *cos, double *sin);
int port_rotate(const vector *v, double *q, double *k); /* k is NULL if the vector has none */

#endif
