package kube

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Store keeps the objects of one kind, reduced to the fields of T. It implements cache.ReflectorStore.
type Store[T any] struct {
	log     *slog.Logger
	changed func()

	mu      sync.Mutex
	objects map[string]*T // by namespace and name
}

// NewStore returns an empty store that calls changed after each change.
func NewStore[T any](log *slog.Logger, changed func()) *Store[T] {
	return &Store[T]{log: log, changed: changed, objects: map[string]*T{}}
}

// Decode converts an object from the API server to T.
func Decode[T any](object map[string]any) (*T, error) {
	one := new(T)
	return one, runtime.DefaultUnstructuredConverter.FromUnstructured(object, one)
}

// DecodeObject decodes an object in the form in which the dynamic client passes it to a Store.
func DecodeObject[T any](object any) (*T, error) {
	return Decode[T](object.(*unstructured.Unstructured).Object) // the dynamic client returns only this type
}

// All returns the objects, in no particular order.
func (s *Store[T]) All() []*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects))
}

// change updates the objects with apply, and calls changed.
func (s *Store[T]) change(apply func(objects map[string]*T)) error {
	s.mu.Lock()
	apply(s.objects)
	s.mu.Unlock()
	s.changed()
	return nil
}

// put decodes an object, and adds it to a map of objects.
func (s *Store[T]) put(into map[string]*T, object any) {
	one, err := DecodeObject[T](object)
	if err != nil {
		u := object.(*unstructured.Unstructured)
		s.log.Warn("the API server sent an object that cannot be read; the object is skipped",
			"kind", u.GetKind(), "name", key(object), "err", err)
		return
	}
	into[key(object)] = one
}

func key(object any) string {
	u := object.(*unstructured.Unstructured)
	return u.GetNamespace() + "/" + u.GetName()
}

// Add stores a new object.
func (s *Store[T]) Add(object any) error {
	return s.change(func(objects map[string]*T) { s.put(objects, object) })
}

// Update replaces an object that changed.
func (s *Store[T]) Update(object any) error { return s.Add(object) }

// Delete removes an object.
func (s *Store[T]) Delete(object any) error {
	return s.change(func(objects map[string]*T) { delete(objects, key(object)) })
}

// Replace replaces all objects with a list.
func (s *Store[T]) Replace(list []any, _ string) error {
	return s.change(func(objects map[string]*T) {
		clear(objects)
		for _, object := range list {
			s.put(objects, object)
		}
	})
}

// Resync does nothing.
func (s *Store[T]) Resync() error { return nil }
