package simruntime

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
)

// idLength is the length of containerd's ids: 32 bytes in hex.
const idLength = 64

// newRand returns a source for one purpose, so that drawing from one never
// shifts what another draws.
func newRand(seed uint64, purpose string) *rand.Rand {
	sum := sha256.Sum256([]byte(purpose))
	for i := range 8 {
		sum[i] ^= byte(seed >> (8 * i))
	}
	return rand.New(rand.NewChaCha8(sum))
}

func newID(rng *rand.Rand) string {
	var b [idLength / 2]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// podIPs returns the addresses of the nth pod. Sixteen million pods get
// addresses of their own, which is more than a simulation makes.
func podIPs(n uint32, dual bool) []string {
	ips := []string{netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()}
	if dual {
		ips = append(ips, netip.AddrFrom16([16]byte{0: 0xfd, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}).String())
	}
	return ips
}

// imageID returns the digest under which a containerd that imported the image
// without a registry would name it.
func imageID(image string) string {
	sum := sha256.Sum256([]byte(image))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// repoDigest returns the reference of an image by a digest in its repository.
func repoDigest(image string) string {
	sum := sha256.Sum256([]byte("manifest of " + image))
	name := image
	if tag := strings.LastIndexByte(name, ':'); tag > strings.LastIndexByte(name, '/') {
		name = name[:tag]
	}
	return name + "@sha256:" + hex.EncodeToString(sum[:])
}

func uitoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
