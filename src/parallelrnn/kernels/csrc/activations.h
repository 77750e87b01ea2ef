/* tanh, sigmoid and the other activations with their derivatives; a template like vectors.h.
 *
 * float: one rational function, x P(x^2) / Q(x^2), fitted to tanh on [-9, 9] with relative error 2.1e-8; with rounding
 * 3.2e-7 at most. double: from expm1, within a few units of rounding. NaN stays NaN, and |tanh| never passes one.
 */
#define vtanh NAME(vtanh)
#define vsigmoid NAME(vsigmoid)

#if IS_DOUBLE

/* expm1 by exp(x) - 1 = 2^n (e^r - 1) + (2^n - 1) with |r| <= ln(2)/2: no cancellation, even near zero. x <= 0. */
static INLINE vec NAME(expm1)(vec x) {
    const double shift = 0x1.8p52; /* adding it rounds to an integer, which ends up in the low bits */
    x = at_least(x, -708.0);
    vec shifted = x * broadcast(0x1.71547652b82fep0) + broadcast(shift); /* log2(e) */
    vec n = shifted - broadcast(shift);
    vec r = x - n * broadcast(0x1.62e42fefa38p-1); /* ln 2 in two parts; the first has few enough bits that n * it is exact */
    r = r - n * broadcast(0x1.ef35793c7673p-45);
    vec scale = (vec)(((mask)shifted << 52) + (mask)broadcast(1.0));
    vec p = broadcast(1.0 / 6227020800.0); /* Taylor: the first term left out is r^14 / 14! < 4.1e-18 */
    p = p * r + broadcast(1.0 / 479001600.0);
    p = p * r + broadcast(1.0 / 39916800.0);
    p = p * r + broadcast(1.0 / 3628800.0);
    p = p * r + broadcast(1.0 / 362880.0);
    p = p * r + broadcast(1.0 / 40320.0);
    p = p * r + broadcast(1.0 / 5040.0);
    p = p * r + broadcast(1.0 / 720.0);
    p = p * r + broadcast(1.0 / 120.0);
    p = p * r + broadcast(1.0 / 24.0);
    p = p * r + broadcast(1.0 / 6.0);
    p = p * r + broadcast(0.5);
    p = p * r * r + r;
    return scale * p + (scale - broadcast(1.0));
}

static INLINE vec vtanh(vec x) {
    const mask sign = (mask)broadcast(-0.0);
    vec e = NAME(expm1)(broadcast(-2.0) * (vec)((mask)x & ~sign));
    vec t = e / (broadcast(-2.0) - e);
    return (vec)((mask)t | ((mask)x & sign));
}

static INLINE vec vsigmoid(vec x) {
    /* From exp(-|x|), which cannot overflow, then mirrored: sigmoid(x) = 1 - sigmoid(-x). */
    const mask sign = (mask)broadcast(-0.0);
    vec e = NAME(expm1)((vec)((mask)x | sign)) + broadcast(1.0);
    vec below = e / (broadcast(1.0) + e);
    return choose((mask)x < 0, below, broadcast(1.0) / (broadcast(1.0) + e));
}

#else

static INLINE vec vtanh(vec x) {
    x = at_least(at_most(x, 9.0f), -9.0f);
    vec y = x * x;
    vec p = broadcast(1.3354654e-08f);
    p = p * y + broadcast(2.0609075e-05f);
    p = p * y + broadcast(0.0034955877f);
    p = p * y + broadcast(0.13381025f);
    p = p * y + broadcast(1.0f);
    vec q = broadcast(7.776555e-07f);
    q = q * y + broadcast(0.00032856342f);
    q = q * y + broadcast(0.02587698f);
    q = q * y + broadcast(0.46714342f);
    q = q * y + broadcast(1.0f);
    return at_least(at_most(x * p / q, 1.0f), -1.0f);
}

static INLINE vec vsigmoid(vec x) { return broadcast(0.5f) * vtanh(broadcast(0.5f) * x) + broadcast(0.5f); }

#endif

#define activate NAME(activate)
static INLINE vec activate(vec x, int mode) {
    switch (mode) {
    case RNN_TANH: return vtanh(x);
    case RNN_RELU: return at_least(x, 0);
    case RNN_SIGMOID: return vsigmoid(x);
    default: return x;
    }
}

/* The derivative of an activation, from its value. */
#define slope NAME(slope)
static INLINE vec slope(vec h, int mode) {
    switch (mode) {
    case RNN_TANH: return broadcast(1) - h * h;
    case RNN_RELU: return choose(h <= broadcast(0), broadcast(0), broadcast(1)); /* NaN passes, as in torch */
    case RNN_SIGMOID: return h * (broadcast(1) - h);
    default: return broadcast(1);
    }
}
