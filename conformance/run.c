/* Run the vectors against a port in C: cc -O2 run.c PORT.c -lm -o run && ./run vectors/far.txt …
 *
 * PORT.c defines the functions of port.h. The exit status is 1 if a result is invalid, 2 if a file
 * cannot be read. README.md says what a vector has, and why a result may be off by how much. */
#include "port.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, RESULTS = 32, FIELDS = 8 }; /* the right result and those of mistakes */
static const double FREQUENCIES = 4e-6, TABLES = 1e-6, PRODUCT = 8.0 / 16777216.0;
static const char *NAMES[FIELDS] = {"inverse_frequencies", "attention_factor", "cos", "sin",
                                    "rotated_q", "rotated_k", "q", "k"};
static const char *LEVELS[3] = {"frequencies", "tables", "rotate"};
static const char *DTYPES[3] = {"float32", "bfloat16", "float16"};
static const double ROUNDING[3] = {1.0 / 4194304, 1.0 / 128, 1.0 / 1024};

typedef struct { int count; double *numbers; } list;
static const char *file_name = "";
static int counts[3]; /* exact, with float32 angles, wrong */

static _Noreturn void stop(const char *what) {
    fprintf(stderr, "conformance: %s must be a file of vectors: %s\n", file_name, what);
    exit(2);
}

static void word(FILE *file, char *to, int size) {
    char format[16];
    snprintf(format, sizeof format, "%%%ds", size - 1);
    if (fscanf(file, format, to) != 1) stop("it ends early");
}

static double number(FILE *file) {
    char text[64], *end;
    word(file, text, sizeof text);
    double value = strtod(text, &end);
    if (*end) stop("a number is expected");
    return value;
}

static list numbers(FILE *file) {
    list found = {(int)number(file), NULL};
    if (found.count < 0 || found.count > 1 << 24) stop("a list is too long");
    found.numbers = calloc(found.count + 1, sizeof(double));
    for (int i = 0; i < found.count; i++) found.numbers[i] = number(file);
    return found;
}

static int index_of(const char *name, const char **names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return i;
    stop("a field or a dtype is unknown");
}

/* The two dimensions of pair i. */
static void places(const vector *v, const char *pairing, int i, int *first, int *second) {
    int at = v->start, block = 0;
    for (; i >= v->blocks[block] / 2; i -= v->blocks[block++] / 2) at += v->blocks[block];
    int half = !strcmp(pairing, "half");
    *first = at + (half ? i : 2 * i);
    *second = at + (half ? i + v->blocks[block] / 2 : 2 * i + 1);
}

/* How far number i of a field may be off; angles: whether float32 may have rounded them. */
static double bound(const vector *v, int field, int i, int angles) {
    double coarse = ROUNDING[index_of(v->dtype, DTYPES, 3)], factor = fabs(v->attention_factor);
    if (field == 0) return FREQUENCIES * fabs(v->inverse_frequencies[i]) + 1e-30;
    if (field == 1) return FREQUENCIES * factor;
    int pair = i % v->pairs, token = i / v->pairs, a, b;
    const double *x = field == 5 ? v->k : v->q;
    if (field >= 4) {
        int d = i % v->head_dim;
        token = i / v->head_dim;
        x += token * v->head_dim;
        for (pair = 0; pair < v->pairs; pair++) {
            places(v, v->write_pairing, pair, &a, &b);
            if (a == d || b == d) break;
        }
        if (pair == v->pairs) return coarse * fabs(x[d]) + 1e-6;
    }
    double angle = fabs(v->positions[v->axis_of_pair[pair]][token] * v->inverse_frequencies[pair]);
    double off = factor * (TABLES + (angles ? fmin(2, PRODUCT * angle) : 0));
    if (field < 4) return off;
    places(v, v->pairing, pair, &a, &b);
    return (fabs(x[a]) + fabs(x[b])) * (off + coarse * factor);
}

/* The largest difference of a level's two fields from others, in units of the bounds. */
static double error(const vector *v, int level, double *made[2], const list *right, int angles) {
    double worst = 0;
    for (int f = 0; f < 2; f++)
        for (int i = 0; made[f] && i < right[2 * level + f].count; i++) {
            double off = fabs(made[f][i] - right[2 * level + f].numbers[i]);
            double ratio = off / bound(v, 2 * level + f, i, angles);
            worst = ratio <= worst ? worst : isnan(ratio) ? INFINITY : ratio;
        }
    return worst;
}

static void judge(const vector *v, int count, char names[][64], list found[][FIELDS]) {
    for (int level = 0; level < 3; level++) {
        const list *right = found[0];
        int sizes[2] = {right[2 * level].count, right[2 * level + 1].count};
        if (!sizes[0] && !sizes[1]) continue;
        double *made[2] = {calloc(sizes[0] + 1, 8), sizes[1] ? calloc(sizes[1], 8) : NULL};
        int offers = level == 0 ? port_frequencies(v, made[0], made[1])
                   : level == 1 ? port_tables(v, made[0], made[1])
                                : port_rotate(v, made[0], made[1]);
        if (offers && error(v, level, made, right, 0) <= 1) {
            counts[0]++;
        } else if (offers && error(v, level, made, right, 1) <= 1) {
            counts[1]++;
        } else if (offers) {
            const char *trap = "no known mistake";
            for (int t = count - 1; t > 0; t--) {
                int shown = found[t][2 * level].count || found[t][2 * level + 1].count;
                if (shown && error(v, level, made, found[t], 1) <= 1) trap = names[t];
            }
            printf("FAILED %s/%s, %s: %s\n", v->area, v->name, LEVELS[level], trap);
            counts[2]++;
        }
        free(made[0]), free(made[1]);
    }
}

static void run(FILE *file) {
    char name[64], names[RESULTS][64];
    word(file, name, sizeof name);
    if (strcmp(name, "conformance") || (int)number(file) != VERSION) stop("another version");
    while (fscanf(file, "%63s", name) == 1) {
        static list found[RESULTS][FIELDS]; /* of one vector at a time */
        vector v = {0};
        int count = 1;
        memset(found, 0, sizeof found), strcpy(names[0], "");
        if (strcmp(name, "vector")) stop("a vector is expected");
        word(file, v.area, sizeof v.area), word(file, v.name, sizeof v.name);
        word(file, v.dtype, sizeof v.dtype), index_of(v.dtype, DTYPES, 3);
        for (word(file, name, sizeof name); strcmp(name, "end"); word(file, name, sizeof name)) {
            if (!strcmp(name, "head_dim")) v.head_dim = (int)number(file);
            else if (!strcmp(name, "rotary_dim")) v.rotary_dim = (int)number(file);
            else if (!strcmp(name, "start")) v.start = (int)number(file);
            else if (!strcmp(name, "reverse")) v.reverse = (int)number(file);
            else if (!strcmp(name, "length")) v.length = (int)number(file);
            else if (!strcmp(name, "theta")) v.theta = number(file);
            else if (strstr(name, "pairing")) word(file, *name == 'p' ? v.pairing : v.write_pairing, 16);
            else if (!strcmp(name, "scaling")) {
                if ((v.rule_count = (int)number(file)) > 160) stop("a rule is too long");
                for (int i = 0; i < v.rule_count; i++)
                    word(file, v.rule[i][0], 48), word(file, v.rule[i][1], 48);
            } else if (!strcmp(name, "blocks") || !strcmp(name, "axis_of_pair")) {
                list row = numbers(file);
                int *to = v.blocks;
                if (*name == 'b' && (v.block_count = row.count) > 16) stop("too many blocks");
                else if (*name == 'a') to = v.axis_of_pair = calloc(v.pairs = row.count, sizeof(int));
                for (int i = 0; i < row.count; i++) to[i] = (int)row.numbers[i];
            } else if (!strcmp(name, "positions")) {
                list row = numbers(file);
                if (v.axes == 8 || (v.axes && row.count != v.tokens)) stop("its axes are damaged");
                v.tokens = row.count, v.positions[v.axes++] = row.numbers;
            } else if (!strcmp(name, "trap")) {
                word(file, name, sizeof name);
                if (strcmp(names[count - 1], name)) strcpy(names[count++], name);
                if (count == RESULTS) stop("a vector has too many traps");
                word(file, name, sizeof name);
                found[count - 1][index_of(name, NAMES, FIELDS)] = numbers(file);
            } else found[0][index_of(name, NAMES, FIELDS)] = numbers(file);
        }
        int table = v.tokens * v.pairs, heads = v.tokens * v.head_dim, k = !!found[0][7].count;
        int sizes[FIELDS] = {v.pairs, 1, table, table, heads, k * heads, heads, k * heads};
        for (int i = 0; i < count * FIELDS; i++) {
            int size = found[i / FIELDS][i % FIELDS].count;
            if (size != sizes[i % FIELDS] && (size || i < FIELDS)) stop("numbers are missing");
        }
        for (int i = 0; i < v.pairs; i++)
            if (v.axis_of_pair[i] < 0 || v.axis_of_pair[i] >= v.axes) stop("an axis is missing");
        int rest = v.rotary_dim;
        for (int i = 0; i < v.block_count; i++) rest -= v.blocks[i] > 0 ? v.blocks[i] : 1 << 20;
        if (rest || v.start < 0 || v.start + v.rotary_dim > v.head_dim || 2 * v.pairs != v.rotary_dim)
            stop("sizes differ");
        v.inverse_frequencies = found[0][0].numbers, v.attention_factor = found[0][1].numbers[0];
        v.cos = found[0][2].numbers, v.sin = found[0][3].numbers;
        v.q = found[0][6].numbers, v.k = found[0][7].numbers;
        judge(&v, count, names, found);
    }
}

int main(int count, char **files) {
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(file_name = files[i], "r");
        if (!file) stop("it cannot be opened");
        run(file), fclose(file);
    }
    printf("exact %d, float32 angles %d, wrong %d\n", counts[0], counts[1], counts[2]);
    if (!(counts[0] + counts[1] + counts[2])) fprintf(stderr, "conformance: nothing was tested; the port answered no vector\n");
    return counts[0] + counts[1] + counts[2] ? counts[2] > 0 : 2;
}
