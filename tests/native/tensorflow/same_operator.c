// A library with one operator for TensorFlow, "NereidSame": its output is its input, a tensor of floats.
#include <stddef.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;

extern TF_Status *TF_NewStatus(void);
extern void TF_DeleteStatus(TF_Status *status);
extern void TF_DeleteTensor(TF_Tensor *tensor);
extern void *TF_NewOpDefinitionBuilder(const char *name);
extern void TF_OpDefinitionBuilderAddInput(void *builder, const char *specification);
extern void TF_OpDefinitionBuilderAddOutput(void *builder, const char *specification);
extern void TF_OpDefinitionBuilderSetShapeInferenceFunction(void *builder, void (*infer)(void *, TF_Status *));
extern void TF_ShapeInferenceContextSetUnknownShape(void *context, TF_Status *status);
extern void TF_RegisterOpDefinition(void *builder, TF_Status *status);
extern void *TF_NewKernelBuilder(const char *name, const char *device, void *(*create)(void *),
                                 void (*compute)(void *, void *), void (*destroy)(void *));
extern void TF_RegisterKernelBuilder(const char *name, void *builder, TF_Status *status);
extern void TF_GetInput(void *context, int index, TF_Tensor **tensor, TF_Status *status);
extern void TF_SetOutput(void *context, int index, const TF_Tensor *tensor, TF_Status *status);

static void compute(void *kernel, void *context) {
  (void)kernel;
  TF_Status *status = TF_NewStatus();
  TF_Tensor *tensor = NULL;
  TF_GetInput(context, 0, &tensor, status);
  if (tensor != NULL) {
    TF_SetOutput(context, 0, tensor, status);
    TF_DeleteTensor(tensor);
  }
  TF_DeleteStatus(status);
}

__attribute__((constructor)) static void register_operator(void) {
  TF_Status *status = TF_NewStatus();
  void *builder = TF_NewOpDefinitionBuilder("NereidSame");
  TF_OpDefinitionBuilderAddInput(builder, "x: float");
  TF_OpDefinitionBuilderAddOutput(builder, "y: float");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, TF_ShapeInferenceContextSetUnknownShape);
  TF_RegisterOpDefinition(builder, status);
  void *kernel = TF_NewKernelBuilder("NereidSame", "CPU", NULL, compute, NULL);
  TF_RegisterKernelBuilder("NereidSame", kernel, status);
  TF_DeleteStatus(status);
}
