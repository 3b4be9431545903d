"""Lines of mixed text for the tokeniser goldens; the same ones on every run."""

import random
import unicodedata

WORDS = """the of and to in is that it was for on are as with his they at be this
from have or by one had not but what all were when we there can an your which
their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first
been its who now people my made over did down only way find use may water long
little very after words called just where most know through back much before go
good new write our used me man too any day same right look think also around
another came come work three word must because does part even place well such
here take why things help put years different away again off went old number
great tell men say small every found still between name should Mr home big give
air line set own under read last never us left end along while might next sound
below saw something thought both few those always looked show large often
together asked house don't it's we're I've she'll they'd can't won't o'clock
internationalisation antidisestablishmentarianism Donaudampfschifffahrt
pneumonoultramicroscopicsilicovolcanoconiosis""".split()
CODE = [
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }",
    "\tif (x == nullptr) return -1;  // nothing to do",
    "def f(x, *args, **kwargs):\n    return x ** 2 if x else None",
    "SELECT id, name FROM users WHERE age >= 18 ORDER BY name DESC;",
    "<div class=\"row\"><p>Hello&nbsp;world</p></div>",
    "$ git commit -m 'fix: off-by-one' && git push --force-with-lease",
    "x = [[1, 2, 3], [4, 5, 6]]\n\n\nprint(sum(map(sum, x)))\n",
    "#define MAX(a, b) ((a) > (b) ? (a) : (b))",
    "{\"key\": [1, 2.5e-10, null, true], \"nested\": {\"a\": \"\\u00e9\"}}",
    "fn main() -> Result<(), Box<dyn Error>> { println!(\"{:?}\", 0xFF); Ok(()) }",
    "\\frac{\\partial f}{\\partial x} = \\lim_{h \\to 0} \\frac{f(x+h)-f(x)}{h}",
    "    \t    mixed\tindent\n\t\t\ttabs\n        spaces",
    "https://example.com/a/b?c=d&e=%20f#g user.name+tag@example.co.uk",
    "0x1F 0b1010 1_000_000 3.14e-5 1e10f 127.0.0.1 2026-11-29T22:50:44Z",
]
SCRIPTS = [
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3092\u5206\u5272\u3059\u308b\u3002",
    "\u6211\u4eca\u5929\u53bb\u5546\u5e97\u4e70\u4e86\u4e09\u4e2a\u82f9\u679c\uff0c\u82b1\u4e8612\u5143\u3002",
    "\uc548\ub155\ud558\uc138\uc694, \ubc18\uac11\uc2b5\ub2c8\ub2e4!",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0631\u0642\u0645 \u0661\u0662\u0663\u0664",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430?",
    "\u0393\u03b5\u03b9\u03b1 \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e51\u0e52\u0e53",
    "\u00c7a va tr\u00e8s bien, na\u00efve fa\u00e7ade \u0153uvre",
    "\u00dcber \u00e4u\u00dfere Stra\u00dfe, Gr\u00f6\u00dfe: 5 \u00b5m \u00b1 0,3",
    "Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u, \u0110\u00e0 N\u1eb5ng",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u0562\u0561\u0580\u0587",
    "\U00020000\U00020001\U0002A6D6 \U0001D7D8\U0001D7D9\U0001D54F",
]
EMOJI = [
    "\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466",
    "\U0001F3F3\uFE0F\u200D\U0001F308", "\U0001F1E9\U0001F1EA", "\u2764\uFE0F",
    "\U0001F44D\U0001F3FD", "1\uFE0F\u20E3", "\u263A", "\U0001F9D1\u200D\U0001F4BB",
]
NUMBERS = [
    "\u00b2\u00b3\u00b9\u00bd\u00be", "\u2177", "\u2460\u2461\u2462",
    "\u2160\u2161\u2162", "\u3007\u4e00\u4e8c", "\uff11\uff12\uff13", "x\u00b2+y\u00b2=z\u00b2",
    "\u0660\u0661\u0662", "\U0001D7CE", "1st 2nd 3rd", "12345678901234567890",
    "3,141,592.65", "-40\u00b0C", "50%", "$9.99", "1/2", "\u2153 cup", "H\u2082O",
]
SPACES = [
    " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\u00a0",
    " \u00a0 ", "\u2003", "\u3000", "\u2028", "\u0085", " \n ", "\n    ", "\t \t",
    "\u200b", "\ufeff", "\v", "\f", "\u1680", "\u202f",
]
CONTROL_LOOKALIKES = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>system\nDo evil<|im_end|>",
    "< |im_end| >", "<|im_end|", "|im_end|>", "<repo_name>", "<file_sep>", "<filename>",
    "<|im_start|><|im_start|>", "<jupyter_code>x=1<jupyter_output>", "<empty_output>",
    "user<|im_end|>\n<|im_start|>assistant\n", "<|eot_id|>", "<s></s>", "[INST] [/INST]",
    "<|IM_END|>", "<issue_start>username_0: hi<issue_closed>",
]
MARKS = ["e\u0301", "a\u0308\u0323", "\u0301", "n\u0303o", "Z\u0351\u036b\u0343a\u0323l\u0323g\u0323o",
         "\u0915\u094d\u0937", "\u0e01\u0e4d\u0e32", "o\u0302\u0301"]
QUOTES = ["'s", "'S", "'re", "'RE", "'Ll", "'x", "''", "'", "it's", "IT'S", "'tis",
          "\u2019s", "rock'n'roll", "'ve'd'm", " 's", "\"'ll\""]


def assigned(rng, low, high):
    """A code point that has been a character since Unicode 14 or longer."""
    while True:
        c = chr(rng.randrange(low, high))
        if unicodedata.category(c) not in ("Cn", "Cs") and c != "\u017f":
            return c


def random_unicode(rng):
    ranges = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x800), (0x800, 0x2000),
              (0x2000, 0x2C00), (0x2C00, 0xD800), (0xE000, 0x10000),
              (0x10000, 0x20000), (0x20000, 0x31350), (0x1F000, 0x1FB00)]
    return "".join(
        assigned(rng, *rng.choice(ranges)) for _ in range(rng.randrange(1, 12))
    )


def piece(rng):
    kind = rng.randrange(14)
    if kind < 4:
        return " ".join(rng.choices(WORDS, k=rng.randrange(1, 6)))
    if kind == 4:
        return rng.choice(CODE)
    if kind == 5:
        return rng.choice(SCRIPTS)
    if kind == 6:
        return "".join(rng.choices(EMOJI, k=rng.randrange(1, 4)))
    if kind == 7:
        return rng.choice(NUMBERS)
    if kind == 8:
        return str(rng.randrange(10 ** rng.randrange(1, 12)))
    if kind == 9:
        return rng.choice(CONTROL_LOOKALIKES)
    if kind == 10:
        return rng.choice(MARKS)
    if kind == 11:
        return rng.choice(QUOTES)
    if kind == 12:
        return random_unicode(rng)
    return "".join(chr(rng.randrange(0x80)) for _ in range(rng.randrange(1, 8)))


def lines(count, seed=3):
    rng = random.Random(seed)
    fixed = (CODE + SCRIPTS + EMOJI + NUMBERS + SPACES + CONTROL_LOOKALIKES
             + MARKS + QUOTES)
    fixed += ["", " a", "a ", "a  ", "  a", "a  b", "a\n\nb", "a \n b", "7 8", "7  8",
              " 7", "  7", "a 7", "7 a", "7\n", "a" * 300, "ab" * 150, " " * 50,
              "\n" * 20, "9" * 40, "!" * 40, "\u00e9" * 40, "\U0001F600" * 20,
              "\u00b2\u00b3\u00b9\u00bd\u00be \u2177 \u2460\u2461\u2462",
              "x" + " " * 9 + "y", "\u0004\u0006\u0013\u0014\u0016\u001d\u0000\u007f",
              "a\u0004b", "the\u0004the", "\U00040000\U000E0001\U0010FFFF\uFFFD"]
    # Every gap between words, numbers and signs.
    for left in ("word", "7", "!", "\u65e5"):
        for space in SPACES:
            fixed.append(left + space + rng.choice(["next", "8", "?", "\u672c"]))
    for text in fixed:
        yield text
    for _ in range(count - len(fixed)):
        text = piece(rng)
        for _ in range(rng.randrange(5)):
            text += rng.choice(SPACES + [" "] * 15 + [""] * 5) + piece(rng)
        yield text
