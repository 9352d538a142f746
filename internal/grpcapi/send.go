package grpcapi

import (
	"iter"

	"google.golang.org/grpc"
)

// sendList sends the entries of a list, each as a message.
func sendList[T, M any](s grpc.ServerStreamingServer[M], list iter.Seq2[T, error], write func(T) *M) error {
	for entry, err := range list {
		if err == nil {
			err = s.Send(write(entry))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendAll returns a function that sends entries that were read, unless reading them failed.
func sendAll[T, M any](s grpc.ServerStreamingServer[M], write func(T) *M) func([]T, error) error {
	return func(entries []T, err error) error {
		for _, entry := range entries {
			if err == nil {
				err = s.Send(write(entry))
			}
		}
		return err
	}
}
