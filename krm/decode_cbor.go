package krm

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/x448/float16"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// The major types of CBOR (RFC 8949).
const (
	majorUint  = 0
	majorNeg   = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
	majorOther = 7

	breakByte = 0xff
)

// The CBOR tags that change the meaning of a value.
const (
	tagDateTime   = 0
	tagEpoch      = 1
	tagBignum     = 2
	tagNegBignum  = 3
	tagDecimal    = 4
	tagBigfloat   = 5
	tagBase64URL  = 21
	tagBase16     = 23
	tagStringRef  = 25
	tagShareable  = 28
	tagSharedRef  = 29
	tagUUID       = 37
	tagIPv4       = 52
	tagIPv6       = 54
	tagEpochDays  = 100
	tagStringRefs = 256
	tagDate       = 1004
)

// pinnable is the maximum size of an input whose texts share one copy of it.
// With a larger one, a single text that is retained would keep too much memory
// in use.
const pinnable = 64 << 10

// decodeCBOR decodes an array of maps. It is our own decoder, because it makes
// the values of a resource directly, in one pass without reflection, limits
// them, and reports the place of an error.
func decodeCBOR(data []byte, limits Limits) (Package, error) {
	d := &cborDecoder{budget: budget{limits: limits}, data: data}
	if len(data) <= pinnable {
		d.text = string(data)
	} else {
		d.keys = make(map[string]string, 64)
	}
	p, err := d.pkg()
	if err != nil {
		return nil, err
	}
	if d.at < len(d.data) {
		return nil, invalidf("the CBOR goes on for %d bytes after the package; send one array", len(d.data)-d.at)
	}
	return p, nil
}

type cborDecoder struct {
	budget
	data   []byte
	at     int
	text   string            // data as a string, if it is pinnable
	keys   map[string]string // the keys seen so far, otherwise
	shared []sharedValue
	refs   *stringRefs // of the namespace that is being read, or nil
	tags   int         // nesting of tags around the current value
}

// stringRefs are the strings of a namespace that references can name.
type stringRefs []stringRef

type stringRef struct {
	data  []byte
	bytes bool // bytes, not text
}

// remember adds a string if it is longer than its reference.
func (r *stringRefs) remember(data []byte, bytes bool) {
	least := 3
	switch n := len(*r); {
	case n >= 1<<16:
		least = 7
	case n >= 1<<8:
		least = 5
	case n >= 24:
		least = 4
	}
	if len(data) >= least {
		*r = append(*r, stringRef{data, bytes})
	}
}

// A sharedValue can be referred to after it is complete.
type sharedValue struct {
	value any
	done  bool
}

// A head is the beginning of an item. An indefinite length is a flag, not a
// value of arg.
type head struct {
	major      byte
	info       byte
	arg        uint64
	indefinite bool
}

func (d *cborDecoder) head() (head, *Error) {
	if d.at >= len(d.data) {
		return head{}, d.short()
	}
	b := d.data[d.at]
	d.at++
	h := head{major: b >> 5, info: b & 31}
	left := d.data[d.at:]
	switch {
	case h.info < 24:
		h.arg = uint64(h.info)
		return h, nil
	case h.info == 24 && len(left) >= 1:
		h.arg = uint64(left[0])
		d.at++
		return h, nil
	case h.info == 25 && len(left) >= 2:
		h.arg = uint64(binary.BigEndian.Uint16(left))
		d.at += 2
		return h, nil
	case h.info == 26 && len(left) >= 4:
		h.arg = uint64(binary.BigEndian.Uint32(left))
		d.at += 4
		return h, nil
	case h.info == 27 && len(left) >= 8:
		h.arg = binary.BigEndian.Uint64(left)
		d.at += 8
		return h, nil
	case h.info == 31 && h.major >= majorBytes && h.major <= majorMap:
		h.indefinite = true
		return h, nil
	case h.info == 31 && h.major == majorOther:
		return h, d.malformed("a break where none can be")
	case h.info > 27:
		return h, d.malformed("a reserved length")
	}
	return h, d.short()
}

// left returns the number of remaining bytes.
func (d *cborDecoder) left() uint64 { return uint64(len(d.data) - d.at) } //nolint:gosec // at is never beyond the end

func (d *cborDecoder) short() *Error {
	return invalidf("the CBOR ends too early, after %d bytes", len(d.data))
}

func (d *cborDecoder) malformed(what string) *Error {
	return invalidf("the CBOR is malformed at byte %d: %s", d.at-1, what)
}

// pkg reads the array.
func (d *cborDecoder) pkg() (Package, *Error) {
	h, err := d.head()
	for err == nil && h.major == majorTag {
		switch h.arg {
		case tagShareable:
			d.shared = append(d.shared, sharedValue{})
		case tagStringRefs:
			d.refs = &stringRefs{}
		}
		h, err = d.head()
	}
	if err != nil {
		return nil, err
	}
	if h.major == majorOther && h.info == 22 { // null: Go encoders write it for a nil slice
		return nil, nil
	}
	if h.major != majorArray {
		return nil, invalidf("the CBOR must be an array of maps, but is %s", h.describe())
	}
	if !h.indefinite && h.arg > d.left() {
		return nil, d.short()
	}
	var p Package
	for i := uint64(0); ; i++ {
		if end, err := d.end(h, i); err != nil || end {
			return p, err
		}
		v, err := d.value(1)
		if err == nil {
			p, err = d.add(p, v)
		} else {
			err.Index = len(p) + 1
		}
		if err != nil {
			return nil, err
		}
	}
}

// end reports whether an array or map ends after i items.
func (d *cborDecoder) end(h head, i uint64) (over bool, err *Error) {
	if !h.indefinite {
		return i >= h.arg, nil
	}
	if d.at >= len(d.data) {
		return false, d.short()
	}
	if d.data[d.at] == breakByte {
		d.at++
		return true, nil
	}
	return false, nil
}

func (d *cborDecoder) value(depth int) (any, *Error) {
	if err := d.spend(depth); err != nil {
		return nil, err
	}
	h, err := d.head()
	if err != nil {
		return nil, err
	}
	switch h.major {
	case majorUint, majorNeg:
		return h.integer()
	case majorBytes:
		b, err := d.chunks(h)
		if err != nil {
			return nil, err
		}
		return base64.StdEncoding.EncodeToString(b), nil
	case majorText:
		return boxed(d.string(h))
	case majorArray:
		return d.array(h, depth)
	case majorMap:
		return d.mapping(h, depth)
	case majorTag:
		return d.tagged(h.arg, depth)
	}
	return d.simple(h)
}

// boxed returns an untyped nil for an error.
func boxed(s string, err *Error) (any, *Error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (h head) integer() (any, *Error) {
	if h.arg > math.MaxInt64 {
		if h.major == majorNeg {
			n := new(big.Int).SetUint64(h.arg)
			return nil, outOfRange(n.Not(n).String())
		}
		return nil, outOfRange(strconv.FormatUint(h.arg, 10))
	}
	if h.major == majorNeg {
		return -1 - int64(h.arg), nil
	}
	return int64(h.arg), nil
}

func (d *cborDecoder) simple(h head) (any, *Error) {
	switch h.info {
	case 20:
		return false, nil
	case 21:
		return true, nil
	case 22, 23: // null, undefined
		return nil, nil
	case 25:
		return finite(float64(float16.Frombits(uint16(h.arg)).Float32())) //nolint:gosec // it was read as 16 bits
	case 26:
		return finite(float64(math.Float32frombits(uint32(h.arg)))) //nolint:gosec // it was read as 32 bits
	case 27:
		return finite(math.Float64frombits(h.arg))
	}
	return nil, invalidf("is the CBOR simple value %d, which a resource can't hold", h.arg)
}

func finite(f float64) (any, *Error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, notANumber(f)
	}
	return f, nil
}

// take returns the next n bytes of the input, without copying them.
func (d *cborDecoder) take(n uint64) ([]byte, *Error) {
	if n > d.left() {
		return nil, d.short()
	}
	b := d.data[d.at : d.at+int(n)] //nolint:gosec // not more than the data
	d.at += int(n)                  //nolint:gosec // not more than the data
	return b, nil
}

// chunks reads bytes or text, of definite length or in chunks.
func (d *cborDecoder) chunks(h head) ([]byte, *Error) {
	if !h.indefinite {
		b, err := d.take(h.arg)
		if err == nil && d.refs != nil {
			d.refs.remember(b, h.major == majorBytes)
		}
		return b, err
	}
	var all []byte
	for {
		if over, err := d.end(h, 0); err != nil || over {
			return all, err
		}
		chunk, err := d.head()
		if err != nil {
			return nil, err
		}
		if chunk.major != h.major || chunk.indefinite {
			return nil, d.malformed("a text or byte string with something else inside")
		}
		b, err := d.take(chunk.arg)
		if err != nil {
			return nil, err
		}
		if h.major == majorText && !utf8.Valid(b) {
			return nil, invalidf("is text that is not UTF-8")
		}
		all = append(all, b...)
	}
}

func (d *cborDecoder) string(h head) (string, *Error) {
	start := d.at
	b, err := d.chunks(h)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", invalidf("is text that is not UTF-8")
	}
	if d.text != "" && !h.indefinite {
		return d.text[start:d.at], nil
	}
	return string(b), nil
}

func (d *cborDecoder) key() (string, *Error) {
	h, err := d.head()
	if err != nil {
		return "", err
	}
	if h.major == majorTag && h.arg == tagStringRef {
		ref, err := d.stringRef()
		if err == nil && ref.bytes {
			err = invalidf("has a key that is bytes; keys must be text")
		}
		return string(ref.data), err
	}
	if h.major != majorText {
		return "", invalidf("has a key that is %s; keys must be text", h.describe())
	}
	if d.keys == nil || d.refs != nil || h.indefinite || h.arg > 64 {
		return d.string(h)
	}
	b, err := d.take(h.arg)
	if err != nil {
		return "", err
	}
	if key, ok := d.keys[string(b)]; ok {
		return key, nil
	}
	if !utf8.Valid(b) {
		return "", invalidf("has a key that is not UTF-8")
	}
	key := string(b)
	if len(d.keys) < 10_000 {
		d.keys[key] = key
	}
	return key, nil
}

// fits refuses a length that exceeds the rest of the input or of the limit of
// values, before the items are made, and returns the number of items to
// allocate at first, which is at most trust.
func (d *cborDecoder) fits(h head, itemBytes, trust uint64) (int, *Error) {
	if h.indefinite {
		return 0, nil
	}
	if h.arg > d.left()/itemBytes {
		return 0, d.short()
	}
	if h.arg > uint64(max(0, d.limits.Values-d.values)) {
		return 0, tooManyValues(d.limits)
	}
	return int(min(h.arg, trust)), nil //nolint:gosec // not more than trust
}

func (d *cborDecoder) array(h head, depth int) (any, *Error) {
	size, err := d.fits(h, 1, 256)
	if err != nil {
		return nil, err
	}
	list := make([]any, 0, size)
	for i := uint64(0); ; i++ {
		if over, err := d.end(h, i); err != nil {
			return nil, err
		} else if over {
			return list, nil
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err.item(len(list))
		}
		list = append(list, v)
	}
}

func (d *cborDecoder) mapping(h head, depth int) (any, *Error) {
	size, err := d.fits(h, 2, 64)
	if err != nil {
		return nil, err
	}
	m := make(map[string]any, size)
	for i := uint64(0); ; i++ {
		if over, err := d.end(h, i); err != nil {
			return nil, err
		} else if over {
			return m, nil
		}
		key, err := d.key()
		if err != nil {
			return nil, err
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err.under(key)
		}
		before := len(m)
		m[key] = v
		if len(m) == before {
			return nil, invalidf("has the key %q twice", printable.Short(key, 100))
		}
	}
}

// tagged reads the value of a tag. It ignores tags that a resource can't
// represent.
func (d *cborDecoder) tagged(tag uint64, depth int) (any, *Error) {
	// Tags are no levels (cbor2's value sharing has one on each container),
	// but a chain of them is recursion too.
	d.tags++
	if d.tags > 2*d.limits.Depth {
		return nil, invalidf("has too many CBOR tags on each other")
	}
	defer func() { d.tags-- }()
	switch tag {
	case tagStringRefs:
		outer := d.refs
		d.refs = &stringRefs{}
		defer func() { d.refs = outer }()
	case tagStringRef:
		ref, err := d.stringRef()
		switch {
		case err != nil:
			return nil, err
		case ref.bytes:
			return base64.StdEncoding.EncodeToString(ref.data), nil
		}
		return string(ref.data), nil
	case tagShareable:
		place := len(d.shared)
		d.shared = append(d.shared, sharedValue{})
		v, err := d.value(depth)
		if err == nil {
			d.shared[place] = sharedValue{value: v, done: true}
		}
		return v, err
	case tagSharedRef:
		return d.sharedRef(depth)
	case tagBignum, tagNegBignum, tagBase64URL, tagBase16, tagUUID, tagIPv4, tagIPv6:
		return d.taggedBytes(tag, depth)
	}
	v, err := d.value(depth)
	if err != nil {
		return nil, err
	}
	switch tag {
	case tagEpoch:
		return epoch(v)
	case tagEpochDays:
		if days, ok := v.(int64); ok && days > -1e6 && days < 3e6 {
			return time.Unix(days*24*60*60, 0).UTC().Format(time.DateOnly), nil
		}
		return nil, invalidf("is no CBOR date")
	case tagDateTime, tagDate:
		if !isText(v) {
			return nil, invalidf("is no CBOR date")
		}
	case tagDecimal:
		return decimal(v)
	case tagBigfloat:
		return bigfloat(v)
	}
	return v, nil
}

// stringRef returns the string that a reference names. Its full size is
// counted.
func (d *cborDecoder) stringRef() (stringRef, *Error) {
	h, err := d.head()
	if err != nil {
		return stringRef{}, err
	}
	if d.refs == nil || h.major != majorUint || h.arg >= uint64(len(*d.refs)) {
		return stringRef{}, invalidf("refers to a CBOR string that isn't there")
	}
	ref := (*d.refs)[h.arg]
	if !ref.bytes && !utf8.Valid(ref.data) {
		return stringRef{}, invalidf("is text that is not UTF-8")
	}
	return ref, d.spendText(len(ref.data))
}

// sharedRef returns a copy of the value that a reference names. Its full size
// is counted.
func (d *cborDecoder) sharedRef(depth int) (any, *Error) {
	h, err := d.head()
	if err != nil {
		return nil, err
	}
	if h.major != majorUint || h.arg >= uint64(len(d.shared)) {
		return nil, invalidf("refers to a shared CBOR value that isn't there")
	}
	s := d.shared[h.arg]
	if !s.done {
		return nil, invalidf("contains itself, which a resource can't")
	}
	return d.copied(s.value, depth)
}

func (d *cborDecoder) copied(value any, depth int) (any, *Error) {
	if err := d.spend(depth); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case []any:
		c := make([]any, len(v))
		for i, x := range v {
			y, err := d.copied(x, depth+1)
			if err != nil {
				return nil, err
			}
			c[i] = y
		}
		return c, nil
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, x := range v {
			if err := d.spendText(len(k)); err != nil {
				return nil, err
			}
			y, err := d.copied(x, depth+1)
			if err != nil {
				return nil, err
			}
			c[k] = y
		}
		return c, nil
	case string:
		if err := d.spendText(len(v)); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// taggedBytes reads bytes whose tag gives them another meaning than base64
// text. The tag doesn't change other values.
func (d *cborDecoder) taggedBytes(tag uint64, depth int) (any, *Error) {
	if d.at >= len(d.data) {
		return nil, d.short()
	}
	if d.data[d.at]>>5 != majorBytes {
		if tag == tagBignum || tag == tagNegBignum {
			return nil, invalidf("is no CBOR bignum")
		}
		return d.value(depth)
	}
	if err := d.spend(depth); err != nil {
		return nil, err
	}
	h, err := d.head()
	if err != nil {
		return nil, err
	}
	b, err := d.chunks(h)
	if err != nil {
		return nil, err
	}
	switch tag {
	case tagBignum, tagNegBignum:
		return bignum(b, tag == tagNegBignum)
	case tagBase64URL:
		return base64.RawURLEncoding.EncodeToString(b), nil
	case tagBase16:
		return strings.ToUpper(hex.EncodeToString(b)), nil
	case tagUUID:
		if len(b) == 16 {
			x := hex.EncodeToString(b)
			return strings.Join([]string{x[:8], x[8:12], x[12:16], x[16:20], x[20:]}, "-"), nil
		}
	case tagIPv4, tagIPv6:
		if ip, ok := netip.AddrFromSlice(b); ok {
			return ip.String(), nil
		}
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

func bignum(b []byte, negative bool) (any, *Error) {
	if len(b) > 1024 {
		return nil, invalidf("a number of %d bytes does not fit 64 bits; write it as text", len(b))
	}
	n := new(big.Int).SetBytes(b)
	if negative {
		n.Not(n)
	}
	if !n.IsInt64() {
		return nil, outOfRange(n.String())
	}
	return n.Int64(), nil
}

func epoch(v any) (any, *Error) {
	const minSeconds, maxSeconds = -62167219200, 253402300799 // years 0 to 9999
	var t time.Time
	switch v := v.(type) {
	case int64:
		if v < minSeconds || v > maxSeconds {
			return nil, invalidf("is a CBOR time outside of the years 0 to 9999")
		}
		t = time.Unix(v, 0)
	case float64:
		if v < minSeconds || v > maxSeconds {
			return nil, invalidf("is a CBOR time outside of the years 0 to 9999")
		}
		whole := math.Floor(v)
		t = time.Unix(int64(whole), 0).Add(time.Duration(math.Round((v-whole)*1e6)) * time.Microsecond)
	default:
		return nil, invalidf("is no CBOR time")
	}
	return t.UTC().Format(time.RFC3339Nano), nil
}

// pair reads an exponent and a mantissa.
func pair(v any) (exponent, mantissa int64, ok bool) {
	list, _ := v.([]any)
	if len(list) != 2 {
		return 0, 0, false
	}
	exponent, ok = list[0].(int64)
	if !ok || exponent < -2000 || exponent > 2000 {
		return 0, 0, false
	}
	mantissa, ok = list[1].(int64)
	return exponent, mantissa, ok
}

// decimal returns the float that is written like a decimal fraction.
func decimal(v any) (any, *Error) {
	if exponent, mantissa, ok := pair(v); ok {
		text := strconv.FormatInt(mantissa, 10) + "e" + strconv.FormatInt(exponent, 10)
		f, err := strconv.ParseFloat(text, 64)
		if err == nil && significant(strconv.FormatFloat(f, 'e', -1, 64)) == significant(text) {
			return f, nil
		}
	}
	return nil, invalidf("is a decimal fraction that no float can keep; write it as text")
}

// significant returns the digits of a number without sign and exponent.
func significant(text string) string {
	digits, _, _ := strings.Cut(text, "e")
	digits = strings.Replace(strings.TrimPrefix(digits, "-"), ".", "", 1)
	return strings.Trim(digits, "0")
}

func bigfloat(v any) (any, *Error) {
	if exponent, mantissa, ok := pair(v); ok {
		f := math.Ldexp(float64(mantissa), int(exponent))
		if back := math.Ldexp(f, -int(exponent)); !math.IsInf(f, 0) && math.Abs(back) < 1<<53 && int64(back) == mantissa {
			return f, nil
		}
	}
	return nil, invalidf("is a big float that no float of 64 bits can keep; write it as text")
}

// describe returns the type of an item, for errors.
func (h head) describe() string {
	switch h.major {
	case majorUint, majorNeg:
		return "an integer"
	case majorBytes:
		return "bytes"
	case majorText:
		return "text"
	case majorArray:
		return "an array"
	case majorMap:
		return "a map"
	case majorTag:
		return "tagged"
	}
	if h.info >= 25 {
		return "a float"
	}
	return "a simple value"
}
