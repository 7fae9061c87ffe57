// A backup program: copies the blocks of a VolumeSnapshot that were written, or that changed since an older one, from the device
// with the snapshot's content to another device, and compares both. It finds the service and gets its token by the code that
// kubernetes-csi/external-snapshot-metadata has for such programs. It prints the number of bytes it was told to copy.
//
//	blocks [-since OLDER] [-from OFFSET] NAMESPACE SNAPSHOT SOURCE TARGET
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/iterator"
	"k8s.io/client-go/rest"
)

type counter struct {
	iterator.VerifierEmitter
	bytes int64
}

func (c *counter) SnapshotMetadataIteratorRecord(number int, metadata iterator.IteratorMetadata) error {
	for _, block := range metadata.BlockMetadata {
		c.bytes += block.SizeBytes
	}
	return c.VerifierEmitter.SnapshotMetadataIteratorRecord(number, metadata)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	since := flag.String("since", "", "an older VolumeSnapshot of the same claim: only what changed since")
	from := flag.Int64("from", 0, "go on at this offset")
	flag.Parse()
	emitter := &counter{VerifierEmitter: iterator.VerifierEmitter{
		SourceDevice: must(os.Open(flag.Arg(2))),
		TargetDevice: must(os.OpenFile(flag.Arg(3), os.O_RDWR, 0)),
	}}
	err := iterator.GetSnapshotMetadata(context.Background(), iterator.Args{
		Clients:          must(iterator.BuildClients(must(rest.InClusterConfig()))),
		Emitter:          emitter,
		Namespace:        flag.Arg(0),
		SnapshotName:     flag.Arg(1),
		PrevSnapshotName: *since,
		StartingOffset:   *from,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(emitter.bytes)
}
