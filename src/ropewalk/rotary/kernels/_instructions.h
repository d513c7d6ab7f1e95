/* Which instructions the processor has, and how GCC and clang are told to compile for them. */

#define AS_PRAGMA(...) _Pragma(#__VA_ARGS__)

#ifdef __clang__
#define FOR_FUNCTIONS(...) AS_PRAGMA(clang attribute push(__attribute__((__VA_ARGS__)), apply_to = function))
#define FOR_INSTRUCTIONS(features) FOR_FUNCTIONS(target(features))
#define FOR_512_BITS(features) FOR_FUNCTIONS(target(features), min_vector_width(512))
#define END_INSTRUCTIONS _Pragma("clang attribute pop")
#define NO_DEPENDENCES _Pragma("clang loop vectorize(assume_safety)")
#else
#define FOR_INSTRUCTIONS(...) _Pragma("GCC push_options") AS_PRAGMA(GCC target(__VA_ARGS__))
#define FOR_512_BITS(features) FOR_INSTRUCTIONS(features, "prefer-vector-width=512")
#define END_INSTRUCTIONS _Pragma("GCC pop_options")
#define NO_DEPENDENCES _Pragma("GCC ivdep")
#endif

/* Sets of instructions that loops are compiled for; each includes those before it. */
enum { PORTABLE, AVX2, AVX512, AVX512BF16 };

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_SETS 1
#include <cpuid.h>

static int has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

/* The last set that the processor has and whose registers the system saves. __builtin_cpu_supports
 * needs a library that not every compiler has in full. */
static int instructions(void) {
    unsigned a, b, c, d, saved, basic;
    if (!__get_cpuid(1, &a, &b, &basic, &d) || !has_all(basic, bit_OSXSAVE | bit_FMA | bit_F16C))
        return PORTABLE;
    __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (!has_all(saved, 0x06) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, bit_AVX2))
        return PORTABLE;
    if (!has_all(saved, 0xe6) || !has_all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ))
        return AVX2;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && has_all(a, 1u << 5) ? AVX512BF16 : AVX512;
}
#else
static int instructions(void) { return PORTABLE; }
#endif
