package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// imageName is what pods ask for. No registry serves it; it is imported.
const imageName = "localhost/plegd/workload:1"

// buildImage compiles the workload and packs it as an OCI archive, once per run of the tests.
var buildImage = sync.OnceValues(func() (archive string, err error) {
	dir := os.Getenv(workEnv)
	bin := filepath.Join(dir, "workload")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./workload")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build workload: %w\n%s", err, out)
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		return "", fmt.Errorf("build workload: %w", err)
	}
	packed, err := pack(program)
	if err != nil {
		return "", fmt.Errorf("pack image: %w", err)
	}
	archive = filepath.Join(dir, "image.tar")
	return archive, os.WriteFile(archive, packed, 0o600)
})

// descriptor points to a blob of the archive, as the OCI image specification has it.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// pack makes an OCI archive of an image with one layer and one file.
func pack(program []byte) ([]byte, error) {
	type object = map[string]any
	blobs := map[string][]byte{}
	add := func(mediaType string, content []byte) descriptor {
		sum := sha256.Sum256(content)
		name := hex.EncodeToString(sum[:])
		blobs["blobs/sha256/"+name] = content
		return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: len(content)}
	}
	addJSON := func(mediaType string, v any) (descriptor, error) {
		content, err := json.Marshal(v)
		return add(mediaType, content), err
	}

	layerTar, err := tarball(map[string][]byte{"workload": program}, "workload")
	if err != nil {
		return nil, err
	}
	layer := add("application/vnd.oci.image.layer.v1.tar", layerTar)
	config, err := addJSON("application/vnd.oci.image.config.v1+json", object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       object{"Entrypoint": []string{"/workload"}, "Cmd": []string{"pause"}},
		"rootfs":       object{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	if err != nil {
		return nil, err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := addJSON(manifestType, object{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{layer},
	})
	if err != nil {
		return nil, err
	}
	// ctr import takes the image's full name from this annotation.
	manifest.Annotations = map[string]string{"io.containerd.image.name": imageName}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err != nil {
		return nil, err
	}
	blobs["index.json"] = index
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return tarball(blobs, "")
}

// tarball packs files; the one named executable is.
func tarball(files map[string][]byte, executable string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, content := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
		if name == executable {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}
